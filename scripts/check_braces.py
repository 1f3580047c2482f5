#!/usr/bin/env python3
"""Reports every if, else, for, while and do whose statement has no braces: clang-format 14 cannot insert them.

usage: check_braces.py FILE...
"""

import re
import sys

NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M | re.S
)
CONTROL = re.compile(r"\b(if|else|for|while|do)\b")


def blank(match):
    """Keeps offsets and line numbers: everything but newlines becomes a space."""
    return re.sub(r"[^\n]", " ", match.group())


def after_parentheses(code, index):
    """Index of the first character after the parenthesised expression that starts at or after index."""
    depth = 0
    for i in range(index, len(code)):
        if code[i] == "(":
            depth += 1
        elif code[i] == ")":
            depth -= 1
            if depth == 0:
                return i + 1
    return len(code)


def unbraced(code):
    for match in CONTROL.finditer(code):
        word, end = match.group(1), match.end()
        if word in ("if", "for", "while"):
            end = after_parentheses(code, end)
        rest = code[end:].lstrip()
        is_do_while = word == "while" and rest.startswith(";") and code[: match.start()].rstrip().endswith("}")
        if not (rest.startswith("{") or is_do_while or (word == "else" and re.match(r"if\b", rest))):
            yield match.start(), word


def main():
    found = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            code = NOT_CODE.sub(blank, file.read())
        for offset, word in unbraced(code):
            print(f"{path}:{code.count(chr(10), 0, offset) + 1}: `{word}` without braces")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
