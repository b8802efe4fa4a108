# SPDX-License-Identifier: GPL-2.0
"""Files that towline.graph and `towline plan` must both take, or both refuse."""

BASE = b"""{"ranks": 2, "slots": 3, "share": true,
 "nodes": [{"name": "a", "rank": 0, "op": "A"}, {"name": "b", "rank": 1}, {"name": "c", "rank": 1}],
 "edges": [{"from": "a", "output": 4, "to": "b", "dtype": "float32", "slots": 1,
            "dims": [2, {"name": "n", "max": 3}]},
           {"from": "b", "to": "c", "dtype": "int8", "dims": null}]}
"""

# What in it is other text.
GOOD = [
    (b"", b""), (b'"slots": 3, ', b""), (b', "share": true', b""), (b', "op": "A"', b""),
    (b'"output": 4, ', b""), (b', "slots": 1', b""), (b'"A"', b'"\\ud83d\\ude00"'),
    (b'"A"', b'"\\ud7a3\\u00e4"'), (b'"A"', '"\u00e4\U0001f600"'.encode()), (b'"A"', b'"\\"\\\\/:\'"'),
    (b'"op"', b'"\\u006fp"'), (b'"A"', b'"' + b"x" * 255 + b'"'), (b'"name": "n", ', b""),
    (b', "max": 3', b""), (b"[2, ", b"[null, "), (b"[2, ", b"[0, "), (b"[2, ", b"[-0, "),
    (b"[2, ", b"[9223372036854775807, null, "), (b"null}", b"[]}"), (b"3}]", b"0}]"),
    (b'"slots": 3', b'"slots": 64'), (b'"ranks": 2', b'"ranks": 65536'), (b": 4", b": 4294967295"),
    (b"}]}\n", b'}, {"from": "a", "to": "c", "dtype": "int8", "dims": [7]}]}'),
    (b"}]}\n", b'}, {"from": "a", "output": 4, "to": "c", "dtype": "float32", '
               b'"dims": [2, {"max": 3, "name": "n"}]}]}'),
    (BASE, b'{"edges": [], "nodes": [], "ranks": 1}'),
    (b', "slots": 1', b', "fallback": true'), (b', "slots": 1', b', "fallback": false'),
    (b'"dims": null', b'"dims": null, "fallback": false'), (b'"dims": null', b'"dims": [0], "fallback": true'),
]

BAD = [
    # What is no JSON, or not in UTF-8.
    (BASE, b""), (b"}]}\n", b"}]"), (b"}]}\n", b"}]}}"), (b"}]}\n", b"}],}"), (b"2, ", b"2 "),
    (b'"ranks"', b"ranks"), (b'"ranks"', b"'ranks'"), (b'"A"', b"'A'"), (b'"A"', b'"\xff"'),
    (b'"A"', b'"\xed\xa0\x80"'), (b'"A"', b'"\xc0\xaf"'), (b'"A"', b'"\\x41"'), (b'"A"', b'"A\tA"'),
    (b"true", b"True"), (b"true", b"TRUE"), (b"null}", b"None}"), (b"null}", b"NULL}"), (b"2, ", b"02, "),
    (b"2, ", b"00, "), (b"2, ", b"-00, "),
    (b"2, ", b"+2, "), (b"2, ", b"0x2, "), (b"2, ", b"2., "), (b"2, ", b"NaN, "), (b"2, ", b"Infinity, "),
    (b"\n", b" // words\n"), (b"\n", b" /* words */\n"), (b'{"ranks"', b'\xef\xbb\xbf{"ranks"'),
    (BASE, BASE.decode().encode("utf-16")), (BASE, BASE.decode().encode("utf-16-le")),
    (BASE, BASE.decode().encode("utf-32")), (BASE, b"[]"), (BASE, b"null"), (BASE, b"[" * 1000),
    # Keys that are not known, missing, or there twice.
    (b'"share"', b'"shared"'), (b'"op"', b'"ops"'), (b'"output"', b'"out"'), (b'"max"', b'"most"'),
    (b'"share": true', b'"x": NaN'), (b'"share": true', b'"x": 1'),
    (b'"share": true', b'"share\\u0000": true'),
    (b'"ranks": 2, ', b""), (b'"rank": 0, ', b""), (b'"name": "a", ', b""), (b'"from": "a", ', b""),
    (b', "to": "b"', b""), (b', "dtype": "int8"', b""), (b', "dims": null', b""),
    (b'"name": "n", "max": 3', b""), (b'"ranks": 2', b'"ranks": 2, "ranks": 2'),
    (b'"op": "A"', b'"op": "A", "op": "A"'), (b'"op": "A"', b'"op": "A", "\\u006fp": "A"'),
    (b'"slots": 1', b'"slots": 1, "slots": 1'), (b'"max": 3', b'"max": 3, "max": 3'),
    # Null, and what says nothing.
    (b'"A"', b"null"), (b"true", b"null"), (b'"slots": 3', b'"slots": null'),
    (b'"slots": 1', b'"slots": null'),
    (b'"output": 4', b'"output": null'), (b'"max": 3', b'"max": null'), (b'"name": "n"', b'"name": null'),
    (b'"ranks": 2', b'"ranks": null'), (b'"rank": 0', b'"rank": null'), (b'"name": "a"', b'"name": null'),
    (b'"int8"', b"null"), (b'"A"', b'""'), (b'"slots": 3', b'"slots": 0'), (b'"slots": 1', b'"slots": 0'),
    (b'"name": "n"', b'"name": ""'), (b'"name": "a"', b'"name": ""'),
    # Values of another type, or too large.
    (b"true", b"1"), (b"true", b'"true"'), (b'"ranks": 2', b'"ranks": true'),
    (b'"ranks": 2', b'"ranks": 2.0'),
    (b'"ranks": 2', b'"ranks": 2e0'), (b'"ranks": 2', b'"ranks": 0'), (b'"ranks": 2', b'"ranks": 65537'),
    (b'"ranks": 2', b'"ranks": "2"'), (b'"rank": 0', b'"rank": 2'), (b'"rank": 0', b'"rank": -1'),
    (b'"slots": 1', b'"slots": 65'), (b'"slots": 3', b'"slots": -1'), (b": 4", b": 4294967296"),
    (b": 4", b": -1"), (b"[2, ", b"[9223372036854775808, "), (b"[2, ", b"[-1, "), (b"[2, ", b"[2.0, "),
    (b"[2, ", b"[true, "), (b"[2, ", b'["2", '), (b"[2, ", b"[[], "),
    (b'"max": 3', b'"max": 18446744073709551616'),
    (b'"max": 3', b'"max": -1'), (b'"max": 3', b'"max": "3"'), (b"[2, ", b"[1, 1, 1, 1, 1, 1, 1, 2, "),
    (b'"dims": null', b'"dims": 3'), (b'"dims": null', b'"dims": {}'), (b'"int8"', b'"int7"'),
    (b'"int8"', b"8"),
    (b'"A"', b"1"), (b'"A"', b'"\\ud800"'), (b'"A"', b'"\\udc00"'), (b'"A"', b'"\\ud800\\ud800"'),
    (b'"A"', b'"\\ud800x"'), (b'"A"', b'"a\\u0000b"'), (b'"A"', b'"a\\nb"'), (b'"A"', b'"\\u009b2J"'),
    (b'"A"', b'"\\u007f"'), (b'"A"', b'"' + b"x" * 256 + b'"'), (b'{"name": "c", "rank": 1}', b"null"),
    (b'{"name": "c", "rank": 1}', b'["c", 1]'),
    (b', "slots": 1', b', "fallback": 1'), (b', "slots": 1', b', "fallback": null'),
    (b'"dims": null', b'"dims": null, "fallback": true'), (b'"dims": null', b'"dims": [], "fallback": true'),
    (b'"dims": null', b'"dims": [2, null], "fallback": true'),
    (b"}]}\n", b'}, {"from": "a", "output": 4, "to": "c", "dtype": "float32", "fallback": true, '
               b'"dims": [2, {"max": 3, "name": "n"}]}]}'),
    # Nodes that are not there, or twice; edges that go backward, are there twice, or not alike.
    (b'"name": "c"', b'"name": "b"'), (b'"to": "b"', b'"to": "d"'), (b'"to": "b"', b'"to": "a"'),
    (b'"from": "b"', b'"from": "c"'), (b'"from": "b", "to": "c"', b'"from": "c", "to": "b"'),
    (b"}]}\n", b'}, {"from": "b", "to": "c", "dtype": "int8", "dims": null}]}'),
    (b"}]}\n", b'}, {"from": "a", "output": 4, "to": "c", "dtype": "float32", '
               b'"dims": [2, {"max": 3, "name": "m"}]}]}'),
    (b"}]}\n", b'}, {"from": "a", "output": 4, "to": "c", "dtype": "float32", "dims": [2, {"max": 3}]}]}'),
    (b"}]}\n", b'}, {"from": "a", "output": 4, "to": "c", "dtype": "int32", '
               b'"dims": [2, {"max": 3, "name": "n"}]}]}'),
]


def forms():
    """(the file's bytes, may it be taken) of each."""
    for table, good in ((GOOD, True), (BAD, False)):
        for old, new in table:
            assert old in BASE
            yield BASE.replace(old, new, 1), good
