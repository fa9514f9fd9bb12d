"""Convert equations of docstrings such as `A_ts = q_t . k_s / sqrt(d_h)` to MathML, which browsers display without a library."""

from __future__ import annotations

import re
from html import escape

#: written as character references, because some of these letters look like Latin letters
_GREEK = {
    name: f"&{name};"
    for name in "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu pi rho sigma tau phi psi omega".split()
}
#: names of functions, before brackets or numbers; other words are prose
_FUNCTIONS = frozenset(
    "sin cos tan exp ln log max min sqrt sum prod floor sign clip bucket sigmoid softplus softmax ReLU ELU tanh MLP GRU LN "
    "seg".split()
)
_OPERATORS = {
    "<=": "&le;", ">=": "&ge;", "..": "…", "=": "=", "+": "+", "-": "&minus;", "/": "/", "*": "⊙", "<": "&lt;", ">": "&gt;",
    "|": "|", "(": "(", ")": ")", "[": "[", "]": "]", ".": "·",
}  # fmt: skip
#: prose: options with their values, and words with a hyphen or an apostrophe
_PROSE = r"[a-z]{3,}(?:_[a-z]{3,})+(?:=\w+)?|[a-z]{3,}=\w+|[A-Za-z]{3,}(?:-[a-z]{3,})+|[A-Za-z]{3,}'s\b"
_TOKEN = re.compile(rf"\s+|{_PROSE}|<=|>=|\.\.|[A-Za-z]+'?(?:[0-9]+(?![0-9.]))?|[0-9]+(?:\.[0-9]+)?|.")
_OPENING, _CLOSING = "([", ")]"


def to_html(text: str) -> str:
    """Return the text as HTML. Formulas become MathML, and other text is escaped."""
    tokens = _TOKEN.findall(text)
    html, formula, depth = [], [], 0

    def close() -> None:
        trailing = []
        while formula and formula[-1].isspace():
            trailing.append(formula.pop())
        if formula:
            html.append(_math(formula))
        html.extend(trailing)
        formula.clear()

    for number, token in enumerate(tokens):
        if token.isspace():
            (formula if formula else html).append(" ")
            continue
        if _is_formula(tokens, number, depth):
            depth = max(0, depth + (token in _OPENING) - (token in _CLOSING))
            formula.append(token)
        else:
            close()
            depth = 0
            html.append(escape(token))
    close()
    return "".join(html)


def _is_formula(tokens: list[str], number: int, depth: int) -> bool:
    token = tokens[number]
    before, after = (tokens[number - 1] if number else " "), (tokens[number + 1] if number + 1 < len(tokens) else " ")
    if re.fullmatch(_PROSE, token):
        return False
    if token[0].isalpha():
        name = token.rstrip("'")
        if name in _FUNCTIONS:
            return after in "([_" or before in "_^/" or name in ("ReLU", "sigmoid") or depth > 0
        if name in _GREEK or after in "_^[" or before in "_^[" or (depth and before in "([|-+/"):
            return True
        if after == "(" and not before.isspace() and before in "([,":
            return True
        if name in ("a", "A", "I") and after.isspace():  # an article or a factor
            following = tokens[number + 2] if number + 2 < len(tokens) else " "
            return following[0] in "=<>+-/|*" or (before.isspace() and number > 1 and tokens[number - 2] in "=+-(/")
        symbol = len(name) == 1 or (len(name) == 2 and name[1].isupper()) or name[-1].isdigit()
        return symbol or (after == "(" and name.isupper())
    if token[0].isdigit():
        year = len(token) == 4 and (before, after) == ("(", ")")
        return not year and (depth > 0 or not (before.isspace() and _is_prose(tokens, number)))
    if token == ",":
        return depth > 0 and (not after.isspace() or _inside_brackets(tokens, number))
    if token == ".":
        return before.isspace() and after.isspace()
    if token in "([":  # brackets in prose contain words
        return not before.isspace() or (after.isalnum() and len(after) <= 2) or after in "([|-"
    if token in ")]":
        return depth > 0
    return token in _OPERATORS or token in "_^"


def _is_prose(tokens: list[str], number: int) -> bool:
    """Return whether a number follows a word, as in `section 3`."""
    word = tokens[number - 2] if number > 1 else " "
    return word.isalpha() and len(word) > 2 and word not in _GREEK and word not in _FUNCTIONS


def _inside_brackets(tokens: list[str], number: int) -> bool:
    rest = "".join(tokens[number:])
    return bool(re.match(r"[^;(]*?[\])]", rest))


def _math(tokens: list[str]) -> str:
    return f"<math>{_row([token for token in tokens if not token.isspace()])}</math>"


def _row(tokens: list[str]) -> str:
    """Return tokens as MathML, with subscripts after `_` and superscripts after `^`."""
    found, number = [], 0
    while number < len(tokens):
        token = tokens[number]
        number += 1
        if token in "_^" and found:
            number, script = _script(tokens, number)
            base, tag = found.pop(), "msub" if token == "_" else "msup"
            if token == "_" and base.startswith("<mo>∑"):
                tag = "munder"
            if token == "^" and base.startswith("<msub>"):
                base, tag = base.removeprefix("<msub>").removesuffix("</msub>"), "msubsup"
            found.append(f"<{tag}>{base}{script}</{tag}>")
        elif token == "sqrt" and number < len(tokens) and tokens[number] == "(":
            number, inner = _script(tokens, number)
            found.append(f"<msqrt>{inner}</msqrt>")
        else:
            found.append(_atom(token))
    return "".join(found)


def _script(tokens: list[str], number: int) -> tuple[int, str]:
    """Return the end of the next token or bracketed group, and its content."""
    if number >= len(tokens):
        return number, "<mrow></mrow>"
    if tokens[number] == "(":
        depth, end = 0, number
        for end in range(number, len(tokens)):
            depth += (tokens[end] == "(") - (tokens[end] == ")")
            if not depth:
                break
        return end + 1, f"<mrow>{_row(tokens[number + 1 : end])}</mrow>"
    if tokens[number] == "|":  # a condition such as |s-t|<=k, up to the next name
        end = next((at for at in range(number + 1, len(tokens)) if tokens[at].isupper()), len(tokens))
        return end, f"<mrow>{_row(tokens[number:end])}</mrow>"
    token = tokens[number]
    if token[0].isalpha() and token not in _GREEK and 1 < len(token) <= 2:
        return number + 1, f"<mrow>{''.join(map(_atom, token))}</mrow>"
    return number + 1, _atom(token)


def _atom(token: str) -> str:
    name = token.rstrip("'")
    if token == "sum":
        return "<mo>∑</mo>"
    if token[0].isalpha():
        primes = "&prime;" * (len(token) - len(name))
        return f"<mi>{_GREEK.get(name) or escape(name)}{primes}</mi>"
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    fence = ' stretchy="false"' * (token in "()[]|")
    return f"<mo{fence}>{_OPERATORS.get(token) or escape(token)}</mo>"
