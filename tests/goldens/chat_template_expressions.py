"""What make_chat_templates.py combines to expressions: values, filters, tests, methods, operators, formats."""
# Values of every kind, as a template writes them.
VALUES = [
    "0", "1", "-7", "255", "2.5", "-0.5", "1e20", "0.1", "true", "none", "missing", "''", "'a'", "'Hello wörld, it\\'s 2 <b>&'",
    "'ab-cd (ef) [gh] <ij ÄÖ'", "' 42 '", "'-3.75'", "'ǆ ß ﬁ Σας ΟΔΟΣ'", "'l1\\nl2\\r\\n\\tx  y'", "'١٢³½Ⅷ一'", "[]", "[3, 1, 2]",
    "['b', 'A', 'c', 'B', 'a']", "[1, 'a', none, 2.5]", "[[1, 2], [0, 5]]", "(1, 2, 3)", "{}", "{'b': 1, 'a': 'x', 'C': none}",
    "[{'k': 'x', 'v': 2}, {'k': 'Y', 'v': 1}, {'k': 'x', 'v': 0}]", "rq", "10 ** 25", "-(2 ** 70)", "('<i>' | safe)",
]
FILTERS = [
    "abs", "attr('k')", "batch(2) | list", "batch(2, 'z') | list", "capitalize", "center(9)", "center", "count", "d('D')",
    "default('D', true)", "dictsort", "e", "escape", "e | e", "filesizeformat", "filesizeformat(true)", "first", "float",
    "float(9.5)", "forceescape", "format(1)", "groupby('k') | list", "groupby('k', case_sensitive=true) | map('first') | list",
    "indent(2)", "int", "int(5)", "int(base=16)", "items | list", "join('-')", "join('/', attribute='k')", "last", "length",
    "list", "lower", "map('string') | list", "map(attribute='k') | list", "max", "min", "max(attribute='v')",
    "reject('string') | list", "rejectattr('v') | list", "replace('a', '<')", "reverse | list", "round", "round(1)",
    "round(1, 'ceil')", "round(0, 'floor')", "round(-1)", "safe", "safe + '<'", "safe ~ '<'", "select('number') | list",
    "selectattr('k', 'eq', 'x') | list", "slice(2) | list", "slice(2, 'z') | list", "sort", "sort(reverse=true)",
    "sort(attribute='v')", "sort(case_sensitive=true)", "string", "sum", "sum(start=10)", "sum(attribute='v')", "title", "tojson",
    "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "trim", "trim('al ')", "truncate(5)",
    "truncate(5, true)", "truncate(5, true, '…', 0)", "unique | list", "unique(attribute='k') | list", "upper", "urlencode",
    "wordcount", "xmlattr",
]
TESTS = [
    "boolean", "callable", "defined", "divisibleby(3)", "eq(1)", "escaped", "even", "false", "float", "ge(1)", "gt(1)", "in([1, 'a'])",
    "integer", "iterable", "le(1)", "lower", "lt(1)", "mapping", "ne(1)", "none", "number", "odd", "sameas(none)", "sequence",
    "string", "true", "undefined", "upper", "filter", "test",
]
# Of all values; most are refused for most.
METHODS = [
    "capitalize()", "casefold()", "center(9, '*')", "count('a')", "count('l', 3)", "endswith('a')", "expandtabs(4)", "find('l')",
    "find('l', 4)", "find('l', -6, -2)", "format(1, a=2)", "index('a')", "isalnum()", "isalpha()", "isascii()", "isdecimal()",
    "isdigit()", "isidentifier()", "islower()", "isnumeric()", "isprintable()", "isspace()", "istitle()", "isupper()",
    "join(['x', 'y'])", "ljust(9)", "ljust(9, '.')", "lower()", "lstrip()", "partition('l')", "removeprefix('He')",
    "removesuffix('&')", "replace('l', 'L', 1)", "rfind('l')", "rindex('l')", "rjust(9, '.')", "rpartition('l')", "rsplit(none, 1)",
    "rstrip()", "split()", "split('l')", "splitlines()", "startswith('He')", "startswith('l', 2)", "strip()", "swapcase()",
    "title()", "upper()", "zfill(6)", "copy()", "count(1)", "index(1)", "index(2, 1)", "get('a')", "get('z', 9)", "items() | list",
    "keys() | list", "values() | list", "append(1)", "clear()", "extend([1])", "insert(0, 1)", "pop()", "pop('a')", "popitem()",
    "remove(1)", "reverse()", "setdefault('q', 1)", "sort()", "update({'x': 1})",
    "a", "k", "nope",
]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "and", "or"]
OPERANDS = ["0", "3", "-2", "2.5", "true", "none", "missing", "'a'", "'%s!'", "[1]", "(1, 2)", "{'a': 1}", "10 ** 25", "-(2 ** 70)", "1e20"]
PERCENT_FORMATS = [
    "%s", "%r", "%a", "%d", "%5d|", "%-5d|", "%05d", "%+d", "% d", "%x", "%#X", "%o", "%#o", "%i", "%u", "%e", "%.2e", "%f", "%.1f", "%8.2f|",
    "%-8.2f|", "%08.2f", "%g", "%.3g", "%#g", "%G", "%c", "%5s|", "%-5s|", "%.2s", "%%", "%5%", "%.3d", "%+.1f", "%(a)s", "%(a)d %(a)s",
    "%y", "%", "no", "%s %s", "%*d|", "%.*f",
]
PERCENT_VALUES = ["5", "-42", "3.14159", "1e300", "10 ** 25", "true", "none", "'text'", "'é'", "'<'", "[1]", "{'a': 7}", "(1, 2)", "(6, 7)", "()",
                  "1e999", "missing"]
BRACE_FORMATS = [
    "", ":", ":5", ":<5", ":>5", ":^5", ":*^7", ":05", ":+", ": ", ":d", ":x", ":#x", ":b", ":#b", ":o", ":,", ":_", ":,.2f", ":.2f", ":8.3f",
    ":e", ":.1e", ":g", ":.3g", ":%", ":.1%", ":.3", ":s", ":.2s", ":=+6", ":010,", ":n", ":c", ":X", ":#X", ":é>4", ":{1}", ":>{1}", "!r", "!s", "!a",
    "!r:>9", "!x", "[a]", "[0]", ".real", ".a", ":z", ":_x", "::", ":5.1", ":<05d",
]
BRACE_VALUES = ["5", "-42", "1234567", "3.14159", "-0.0", "1e300", "10 ** 25", "true", "none", "'text'", "'é'", "[1, 2]", "{'a': 7}", "missing"]
MORE_EXPRESSIONS = [
    "'{} {}'.format(1, 2)", "'{0} {0} {1}'.format(1, 2)", "'{} {0}'.format(1)", "'{a} {b}'.format(a=1, b=2)", "'{{}}'.format()", "'{'.format(1)",
    "'}'.format(1)", "'{a[b]}'.format(a={'b': 5})", "'{a.b}'.format(a={'b': 5})", "'{0[1]}'.format([7, 8])", "'{x}'.format_map({'x': 3})",
    "'{!r:>{w}}'.format('a', w=6)", "('%s' | safe) % '<'", "('{}' | safe).format('<')", "('-' | safe).join(['<', '>'])", "('a' | safe).replace('a', '<')",
    "[('<' | safe)]", "('<' | safe) * 2", "('<a' | safe)[0] is escaped", "('<a' | safe).upper() is escaped", "('<' | e) ~ '<'", "('<' | e) + '<'",
    "9223372036854775807 + 1", "-9223372036854775808 - 1", "9223372036854775807 * 9223372036854775807", "99999999999999999999", "0xFFFFFFFFFFFFFFFFFFFF",
    "2 ** 64", "2 ** 64 // 3", "-(2 ** 64) // 3", "2 ** 64 % 1000", "-(2 ** 64) % 1000", "2 ** 64 / 3", "2 ** 64 / 2 ** 60", "2 ** 64 == 18446744073709551616",
    "2 ** 64 == 18446744073709551616.0", "2 ** 64 > 1e19", "2 ** 64 < 2 ** 65", "2 ** 64 - 2 ** 64 + 1", "[2 ** 64, 1] | sort", "2 ** 64 | string | length",
    "(2 ** 64) | float", "'99999999999999999999' | int", "1e25 | int", "2 ** 0.5", "2 ** -1", "0 ** -1", "(-8) ** 0.5", "10.0 ** 400", "7.5 // 2", "-7.5 // 2",
    "-7.5 % 2", "7 % -3", "1 / 3", "9007199254740993 / 1", "3 / 9007199254740993", "1e308 * 10", "-(1e308 * 10)", "0.1 + 0.2", "5 // 0", "5 % 0", "5.0 / 0",
    "1 < 2.5 < 10 ** 25", "true + true", "not 5", "-true", "+'a'", "-none", "[1, 2] + [3]", "(1,) + (2,)", "[1] + (2,)", "[1] * 3", "3 * 'ab'", "'ab' * -1",
    "{'a': 1} == {'a': 1.0}", "[1, [2]] < [1, [3]]", "'a' in ['a']", "1 in {1: 2}", "[1] in [[1]]", "'x' not in 'abc'", "none in [none]",
    "range(5) | list", "range(2, 10, 3) | sum", "range(3, 0, -1) | list", "dict(a=1, **{'b': 2})", "dict([('a', 1), ('b', 2)])", "dict({'a': 1}, b=2)",
    "[1, 2, 3][1:]", "[1, 2, 3][::-1]", "'abc'[-2:]", "'äöü'[1]", "'abc'[5]", "'abc'[1:2]", "(1, 2, 3)[0:2]", "rq[0]", "rq[-1]", "rq.0",
    "joiner(', ')() ~ 'x'", "cycler('a', 'b').next()", "cycler('a', 'b').current", "namespace(a=1).a", "namespace({'a': 1}).b is defined",
    "x.__class__", "''.__class__", "''.__class__.__mro__", "rq.append(1)", "rd.update({'a': 1})", "rd.pop('a')", "rq.sort()", "rd.setdefault('z', 1)",
    "rq.copy()", "rd.copy()", "rd['update'] is defined", "rq.append is defined", "rd.update is defined", "rd.items() | list", "rq + [1]", "(rq | list).append(1)", "[1, 2].append(3)", "{'a': 1}.pop('a')",
    "'a' if false", "('a' if false) is defined", "1 if true else 2 if false else 3", "missing.x", "missing['x']", "missing()", "missing is defined",
    "missing + 1", "missing ~ 'x'", "missing == missing2", "(missing or 'd') | upper", "none.x is defined", "5.x is defined", "none + 1", "none()", "'x'()",
    "'a' 'b'", "'a' ~ 'b' * 2", "2 * 3 ** 2", "-2 ** 2", "2 ** 3 ** 2", "not 1 == 2", "1 == 1 and 2 == 2 or 3 == 4", "1 is odd and 2 is even", "5 is in [5]",
    "[1, 2, 3] | select('odd') | map('string') | join('+')", "[1, 2] | map('nope') | list", "[1] | select('nope') | list", "[3, 1] | map('pow', 2) | list",
    "['a', 'b'] | map('format', 1) | list", "['%s', '%d'] | map('format', 1) | list", "[[1, 2], [3]] | map('sum') | list", "[[1, 2], [3]] | sum(start=[])",
    "['1', '2'] | map('int') | sum", "[1, 2, 3] | select('>', 1) | list", "[1, 2] | select('==', 2) | list", "[{'a': {'b': 1}}] | map(attribute='a.b') | list",
    "[{'a': 1}, {}] | map(attribute='a', default=0) | list", "[{'a': 1}, {}] | sum(attribute='a')", "[1.5, 2] | sum", "['a'] | sum(start='')",
    "[{'g': 1, 'n': 'x'}, {'g': 1, 'n': 'y'}] | groupby('g') | map(attribute='grouper') | list", "([{'g': 1}] | groupby('g'))[0].list", "[{'g': 2}] | groupby('g', default=1)",
    "'a,b;c' | replace(',', ' ') | title", "\"it's o'neil\".title()", "\"it's o'neil\" | title", "'x' | center(2)", "'x' | center(3)", "'xy'.center(5, '*')", "'x'.center(4, '*')",
    "'ab'.center(1)", "'a'.ljust(3, 'é')", "'a'.ljust(3, 'xx')", "'-5'.zfill(4)", "'+5'.zfill(4)", "'a\tb'.expandtabs()", "'aXbXc'.partition('X')", "'abc'.partition('')",
    "{'a': 1, 'b': none, 'c': '<'} | xmlattr", "{'a b': 1} | xmlattr", "{'a': 'x y', 'b': 1} | urlencode", "[('a', 'ü')] | urlencode", "'a b/ü' | urlencode",
    "1.005 | round(2)", "2.5 | round", "3.5 | round", "-2.5 | round", "1234.5 | round(-2)", "25 | round(-1)", "35 | round(-1)", "2.675 | round(2)", "1e22 | round(2)", "1.1 | round(20)",
    "1.23 | round(1, 'x')", "1000 | filesizeformat", "1500000 | filesizeformat", "1024 | filesizeformat(true)", "0.5 | filesizeformat", "1e27 | filesizeformat",
    "'foo bar baz qux' | truncate(9)", "'foo bar baz qux' | truncate(11)", "'foo bar baz qux' | truncate(11, false, '...', 0)", "'foobar' | truncate(2)",
    "'a  b\nc_d-e' | wordcount", "[1, 2, 3, 4, 5] | batch(2) | list", "[1, 2, 3, 4, 5] | batch(2, 0) | list", "[1, 2, 3, 4, 5] | slice(3) | list", "[1, 2, 3, 4, 5] | slice(3, 0) | list",
    "[1] | batch('x') | list", "[1] | slice(0) | list", "'abc' | first", "'abc' | last", "{'a': 1} | first", "{'a': 1} | last", "[1] | map('string') | last", "[] | first is defined",
    "'x' | attr('upper')", "{'a': 1} | attr('a') is defined", "{'a': 1} | attr('items') is callable", "'' | default('x')", "'' | default('x', true)", "none | d('x')", "none | d('x', true)",
    "'x' is filter", "'upper' is filter", "'upper' is test", "'odd' is test", "'==' is test", "1 is ==(1)", "('a' | safe) is escaped", "('a' | e) is escaped", "'a' is escaped",
    "[3, 1, 2] | sort | first", "['b', 'A'] | sort", "['b', 'A'] | sort(true)", "[[2, 'a'], [1, 'b']] | sort(attribute=0)", "[[2, 'a'], [1, 'b']] | sort(attribute='1,0')", "{'b': 1, 'A': 2} | dictsort",
    "{'b': 1, 'A': 2} | dictsort(true)", "{'b': 1, 'A': 2} | dictsort(false, 'value', true)", "{'b': 1} | dictsort(by='x')", "['a', 'A', 'b'] | unique | list", "[1, 1.0, true] | unique | list", "[[1], [1]] | unique | list",
    "[1, 2, 3] | min", "['b', 'A'] | max", "['b', 'A'] | max(true)", "[] | max is defined", "[1, 'a'] | max", "'12' | int + 1", "'1_0' | int", "'0b11' | int(base=2)", "'0b11' | int(base=0)", "'z' | int(base=36)",
    "'1e3' | int", "'1e3' | float", "'inf' | float", "'nan' | int", "'nan' | float", "'x' | int('d')", "[1] | int", "none | int(3)", "'0x1A' | int(base=16)", "'0x1A' | int", "1.9 | int", "-1.9 | int", "true | int",
]
