"""What in a text must survive to the letter (L6): handles, error lines, and a user's obligations.

Three pure readings of a text, used by the blackboard, by stubs and by the lab's handle recall:

- `literals`     paths, `path:line`, SHAs, uuids, error codes, identifiers, URLs and error lines
- `error_lines`  the lines that say what failed
- `constraints`  the sentences of a user's words that oblige, forbid, or take that back

Rule 1. Everything returned is a slice of the text, so `literal.text in text` is a test for "still there".
Rule 2. Better a literal too many than one lost, but plain words, numbers and dates are never literals.
Rule 3. One pass cuts the text into runs of the characters handles are made of; each distinct run is classified once
        (memoised: sessions repeat their handles). Cost is linear in the text.
Rule 4. Runs are ASCII: Chinese around a path is no part of it, and a path with other letters is found in pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal as OneOf
from typing import TypeAlias

__all__ = ["Literal", "LiteralKind", "constraints", "error_lines", "literals"]

LiteralKind: TypeAlias = OneOf["path", "line", "sha", "uuid", "code", "name", "url", "error"]


@dataclass(frozen=True, slots=True)
class Literal:
    """One handle. `line` is a path with a line number, `code` an error code, `name` an identifier."""

    text: str
    kind: LiteralKind


_MAX_RUN = 400  # longer runs are base64 or minified code; PATH_MAX in practice stays below
_MAX_LINE = 400  # an error line is cut here; what it says stands at its start
_MAX_ERRORS = 16  # error lines a text adds to its literals
_MAX_SENTENCE = 1_000  # a longer "sentence" is pasted data; the message itself stays verbatim anyway (L6a)
_MAX_CONSTRAINTS = 64

_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_RUN = re.compile(r"[A-Za-z0-9_./\\:~@+$%#?&=-]{4,}")
_PLAIN = re.compile(r"[-+:=#?&$%@]*(?:[A-Za-z]?[a-z]*|[\d.:T/=+-]*)[-.:/=#?&+$%~@]*")
_WORD = re.compile(r"\w+")
_STATUS = re.compile(r"(?:HTTP(?:/\d(?:\.\d)?)?|[Ss]tatus(?:[ _]?[Cc]ode)?)[\"']?[:= ]{1,3}[45]\d\d\b")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#].*")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_SHA = re.compile(r"[0-9a-f]{7,64}")
_WINDOWS = re.compile(r"(?:[A-Za-z]:|\.{1,2})?(?:\\{1,2}[\w.$@+~-]+)+|[\w.$@-]+(?:\\{1,2}[\w.$@+~-]+)+\.\w{1,8}")
_ESCAPE = re.compile(r"\\+(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[ntrbfv0])?")
_AT_LINE = re.compile(r"(.+?)(?::(\d+)(?::\d+)?|#L(\d+)(?:-L?\d+)?)(?=[:=#-]|$)")
_CLAUSE = re.compile(r"[=?&%]+")
_COLONS = re.compile(r"[:#]+")
_SPLIT = re.compile(r"[^A-Za-z0-9_.]+|\.\.+")
_CODE = re.compile(
    r"E[A-Z]{0,3}\d{3,5}|[A-Z]{1,5}\d{3,5}|[A-Z]{2,5}-\d{3,7}|CVE-\d{4}-\d{4,7}|ERR_[A-Z0-9_]+|SIG(?:ABRT|ALRM|BUS|FPE"
    r"|HUP|ILL|INT|KILL|PIPE|QUIT|SEGV|TERM|TRAP)|EACCES|EADDR(?:INUSE|NOTAVAIL)|EAGAIN|EAI_[A-Z]+|EBADF|EBUSY"
    r"|ECHILD|ECONN(?:ABORTED|REFUSED|RESET)|EDQUOT|EEXIST|EFAULT|EFBIG|EHOSTUNREACH|EINTR|EINVAL|EISCONN|EISDIR|ELOOP"
    r"|EMFILE|EMSGSIZE|ENAMETOOLONG|ENETUNREACH|ENFILE|ENOBUFS|ENOENT|ENOEXEC|ENOMEM|ENOSPC|ENOSYS|ENOTCONN|ENOTDIR"
    r"|ENOTEMPTY|ENOTFOUND|ENOTSUP|ENOTTY|ENXIO|EPERM|EPIPE|ERANGE|EROFS|ESHUTDOWN|ESRCH|ESTALE|ETIMEDOUT|EXDEV"
)
_NO_CODE = re.compile(r"(?:SHA|MD|RFC|ISO|UTF|AES|BASE|PEP|INT|UINT|GPT|CP|CRC|RSA|HTTP|IPV|H|A|V|X|P|L|T|S|M)-?\d+")
_NAME = re.compile(
    r"_*[A-Za-z][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)+"  # snake_case, CONST_CASE
    r"|[A-Za-z][A-Za-z0-9]*[a-z0-9][A-Z][A-Za-z0-9_]*"  # camelCase, PascalCase
    r"|[A-Z]{2,}[a-z]{2,}[A-Za-z0-9]*"  # HTTPServer
)
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w+)+")
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,9}$")
_SEGMENT = re.compile(r"[\w.$@+~-]{1,80}")
_GREP = re.compile(r"(.*\.[A-Za-z][A-Za-z0-9]{0,9})-\d+")  # grep's context lines: `a.py-12-`
_DENSE = re.compile(r"(?=\w*[a-z])(?=\w*[A-Z])(?=\w*\d)[A-Za-z0-9+]{20,}")  # a piece of base64
_ROOT = re.compile(r"apps?|bin|cmd|crates|docs|etc|examples|internal|lib|packages|pkg|scripts|src|tests?")
_DEVICE = re.compile(r"/dev/(?:null|zero|tty|std\w+|fd/\d+)")
_FILE = re.compile(  # a name without a slash is a file by these endings: `os.path` is none
    r".+\.(?:bat|c|cc|cfg|cjs|cob|conf|cpp|cs|css|csv|cts|cxx|dart|diff|ejs|env|erb|ex|exs|gd|gif|go|gradle"
    r"|graphql|h|hcl|hpp|hs|htm|html|ico|ini|ipynb|java|jpeg|jpg|js|json|jsonc|jsonl|jsx|kt|less|lock|log|lua|m"
    r"|md|mdx|mjs|mk|mm|mts|nix|php|pl|png|po|properties|proto|ps1|py|pyi|pyx|r|rb|red|rs|rst|s|sass|scala|scss"
    r"|sh|sol|sql|svelte|svg|swift|tf|toml|ts|tsv|tsx|txt|vue|wasm|xml|yaml|yml|zig|zip|zsh)"
    r"|Dockerfile|Gemfile|Justfile|Makefile|Procfile|Rakefile|go\.mod|go\.sum|\.env|\.gitignore"
)


def literals(text: str) -> tuple[Literal, ...]:
    """The distinct handles of a text: those of its runs in order of appearance, then HTTP failures, then error lines.

    A path with a line number also gives the path; a dotted or qualified name also gives its own parts."""
    plain = _ANSI.sub(" ", text) if "\x1b" in text else text
    found: dict[str, Literal] = {}
    for run in dict.fromkeys(_RUN.findall(plain)):
        if not (run[1:].islower() and run.isalpha()):
            for literal in _classify(run):
                found[literal.text] = literal
    if "HTTP" in plain or "tatus" in plain:
        for status in _STATUS.findall(plain):
            found[status] = Literal(status, "code")
    for line in error_lines(text, _MAX_ERRORS):
        found[line] = Literal(line, "error")
    return tuple(found.values())


@lru_cache(maxsize=1 << 16)  # about 20 MB when full; a 200k-token session has some 10k distinct runs
def _classify(run: str) -> tuple[Literal, ...]:
    if len(run) > _MAX_RUN or _PLAIN.fullmatch(run):
        return ()
    return tuple(_names(run)) if _WORD.fullmatch(run) else tuple(_in_run(run))


def _in_run(run: str) -> Iterator[Literal]:
    if "://" in run and (url := _URL.search(run)):
        yield Literal(url[0].rstrip(".:?&=#-+/\\"), "url")
        return
    if "\\" in run:
        if _is_windows(run):
            yield Literal(run.rstrip("\\.:"), "path")
            return
        for piece in _ESCAPE.split(run):
            yield from _in_piece(piece)
        return
    if run.count("-") >= 4 and (uuids := _UUID.findall(run)):
        for uuid in uuids:
            yield Literal(uuid, "uuid")
        return
    yield from _in_piece(run)


def _is_windows(run: str) -> bool:
    r"""A path, and not words around the escapes of quoted text (`foo\nbar.py`)."""
    if not _WINDOWS.fullmatch(run.rstrip("\\.:")):
        return False
    return run[1:3] == ":\\" or any(after not in "ntrbfvux0" for after in re.findall(r"\\+(\w)", run))


def _in_piece(run: str) -> Iterator[Literal]:
    for piece in _CLAUSE.split(run):
        rest = piece
        if (":" in piece or "#" in piece) and (at := _AT_LINE.match(piece)) and (path := _path(at[1])):
            yield Literal(path, "path")
            yield Literal(path + at[0][len(at[1]) :], "line")
            rest = piece[at.end() :]
        for word in _COLONS.split(rest):
            if ("." in word or "/" in word) and (path := _path(word)):
                yield Literal(path, "path")
            elif not ("/" in word and any(_DENSE.fullmatch(part) for part in word.split("/"))):
                yield from _names(word)
        if "::" in rest and len(whole := rest.strip(":.-#+~@$")) >= 6 and "::" in whole:
            yield Literal(whole, "name")


def _path(word: str) -> str:
    """The path a word is, or nothing."""
    word = word.lstrip("+-").rstrip(".-/~@$+").removeprefix("./")
    if (grep := _GREP.fullmatch(word)) is not None:
        word = grep[1]
    if "/" not in word:
        is_file = _FILE.fullmatch(word) and _SEGMENT.fullmatch(word) and word[0] not in "$@"
        return word if is_file else ""
    if word.startswith("//"):
        word = word.lstrip("/")
    first, *rest = word.split("/")
    parts = (first, *rest) if first else tuple(rest)
    if not rest or _DEVICE.fullmatch(word) or not all(map(_SEGMENT.fullmatch, parts)):
        return ""
    if any(map(_DENSE.fullmatch, rest)) or not any(part.lstrip("._@$")[:1].isalpha() for part in parts):
        return ""
    is_anchored = first != "" and (first in {"~", "..", "."} or first[0] in "@$.")
    is_path = is_anchored or len(rest) >= 2 or _SUFFIX.search(rest[-1]) or _ROOT.fullmatch(first)
    return word if is_path else ""


def _names(word: str) -> Iterator[Literal]:
    if _CODE.fullmatch(word) and not _NO_CODE.fullmatch(word):
        yield Literal(word, "code")
        return
    for piece in _SPLIT.split(word):
        name = piece.strip(".")
        if len(name) < 5:
            continue
        if _CODE.fullmatch(name) and not _NO_CODE.fullmatch(name):
            yield Literal(name, "code")
        elif _SHA.fullmatch(name) and not name.isdigit() and not name.isalpha() and len(name) >= 7:
            yield Literal(name, "sha")
        elif "." in name:
            if len(name) >= 6 and _DOTTED.fullmatch(name):
                yield Literal(name, "name")
            for part in name.split("."):
                yield from _identifier(part)
        else:
            yield from _identifier(name)


def _identifier(name: str) -> Iterator[Literal]:
    if len(name) >= 6 and not (name.startswith("__") and name.endswith("__")) and _NAME.fullmatch(name):
        yield Literal(name, "name")


# -- error lines

_MARKS = (
    *("rror", "Exception", "FAIL", "panic", "atal: ", "FATAL", "ERR!", "\nE  ", "not ok ", "Traceback (most"),
    *("xit code", "xit status", "xited with", "(exit ", "command not found", "No such file", "ermission denied"),
    *("Segmentation fault", "undefined reference"),
)
_ERROR_LINE = re.compile(
    r"E {2,}\S"  # pytest
    r"|(?:Uncaught |Caused by: |Exception in thread \S+ )*(?:[\w$]+\.)*(?:[A-Z]\w*)?(?:Error|Exception)(?: \[\w+\])?"
    r"(?::\s+\S|\s*$)"
    r"|(?:FAILED|FAIL|ERROR)\b[: ]\s*\S|--- FAIL|not ok \d|npm (?:ERR!|error) \S|panic: |thread '[^']*' panicked"
    # what stands before the word in source code has quotes or parentheses, in a compiler's line it has not
    r"|(?:[^\"'`({]{0,200}?[\s\]):])?(?:[Ee]rror|ERROR|[Ff]atal|FATAL)(?: ?\[?[A-Z]{1,6}\d{2,5}\]?)?:\s+\S"
    r"|.{0,200}?(?:\b(?:[Ee]xit (?:code|status)|[Ee]xited with(?: code| status)?)[:= ]{1,2}|\(exit )-?[1-9]\d{0,2}\b"
    r"|.{0,200}?(?:command not found|No such file or directory|[Pp]ermission denied|Segmentation fault"
    r"|undefined reference to )"
    r"|.{1,300} FAILED\b"
)


def error_lines(text: str, limit: int) -> tuple[str, ...]:
    """At most `limit` distinct lines that say what failed: the first half from the start, the rest from the end."""
    found: dict[str, None] = {}
    for start, end in sorted(set(_marked(text))):
        line = _trim(text[start:end])
        if line.startswith("Traceback (most"):
            found[_trim(_last_of_traceback(text, end))] = None
        elif _ERROR_LINE.match(line):
            found[line] = None
    found.pop("", None)
    lines = tuple(found)
    return lines if len(lines) <= limit else lines[: (limit + 1) // 2] + lines[len(lines) - limit // 2 :]


def _marked(text: str) -> Iterator[tuple[int, int]]:
    """Where the lines stand that hold a mark. Finding fixed strings one by one beats an alternation."""
    if text.startswith("E  "):
        yield 0, _line_end(text, 0)
    for mark in _MARKS:
        at = text.find(mark)
        while at >= 0:
            at += len(mark) - 1
            end = _line_end(text, at)
            yield text.rfind("\n", 0, at) + 1, end
            at = text.find(mark, end)


def _trim(line: str) -> str:
    """The line without indent and colour at its ends: still a slice."""
    line = line.strip()
    while lead := _ANSI.match(line):
        line = line[lead.end() :].lstrip()
    return line[:_MAX_LINE].removesuffix("\x1b[0m").rstrip()


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _last_of_traceback(text: str, end: int) -> str:
    """The first line behind `end` that is not indented: where a Python traceback names its exception."""
    start = end + 1
    while start < len(text):
        end = _line_end(text, start)
        if not text.startswith((" ", "\t", "\n"), start):
            return text[start:end]
        start = end + 1
    return ""


# -- constraints

_FENCE = re.compile(r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)、]|[(（]\d{1,2}[)）]|[一二三四五六七八九十]{1,3}、)[ \t]*(?=\S)")
_STOP = re.compile(r"(?<![.!?])[.!?]+[\"')\]]*(?=\s)|[。！？；]+[”’」）]*")
_PASTED = re.compile(
    r"\s*(?:\d{4}-\d\d-\d\d[T ]\d|\[?\d\d:\d\d:\d\d|\[?(?:INFO|DEBUG|WARN|WARNING|TRACE|ERROR)\b|at \S+ ?\(|File \""
    r"|>>> |\$ |@@ |diff --git|[+-]{3} |Traceback|</?\w+"
    r"|(?:import|from|def|class|return|const|let|var|if|for|while)\b.*[:;{(]$"
    r"|[\w.]+(?:Error|Exception):)|.*[{};]\s*$"
)
_OBLIGES = re.compile(
    r"\b(?:must|never|do not|don['’]?t want|(?<!\bi )(?<!we )(?<!they )don['’]?t|cannot"
    r"|can['’]t|may not|should(?:n['’]t)?|shall|only|always|make sure"
    r"|ensure|be sure|avoid|without|required?|forbidden|forbid|prohibit(?:ed)?|mandatory|need(?:s)? to|have to|has to"
    r"|at most|at least|no more than|no less than|no longer than|refrain|under no circumstances|not allowed"
    r"|no (?!problem|worries|idea|matter|need|doubt|wonder|one\b|thanks)[a-z]+"
    # What takes a rule back or changes it is one too.
    r"|not any ?more|withdraw|withdrawn|revoke[sd]?|you may|(?:may|can) now|now (?:may|can)|correction:"
    r"|(?:is|are|it['’]s) (?:now )?(?:ok|okay|fine|allowed) to)(?!\w)"
    r"|不要|不用|禁止|必须|必需|严禁|只能|只准|只允许|只可|不得|务必|不可|不能|不许|不准|不应|切勿|请勿|避免|一定要|千万|仅限"
    r"|不再|现在可以|收回|撤回|更正|确保|保证|始终|总是|永远|绝不|绝对|无需|应当|至少|至多|最多|不超过"
    r"|(?<![特分区识级类性个鉴])别(?![的人处名墅])",
    re.IGNORECASE,
)
_ASKS = re.compile(r"\s*(?:please|can|could|would|will|请|能|可以|麻烦)", re.IGNORECASE)


def constraints(text: str) -> tuple[str, ...]:
    """The sentences and list items of a user's words that oblige, forbid, or take that back, verbatim, in order.

    Fenced code, log lines, diffs and error lines are someone else's words and give none; nor does a plain question."""
    found: dict[str, None] = {}
    start = 0
    for fence in (*_FENCE.finditer(text), None):
        for sentence in _sentences(text[start : fence.start() if fence else len(text)]):
            if len(sentence) <= _MAX_SENTENCE and _obliges(sentence):
                found[sentence] = None
                if len(found) == _MAX_CONSTRAINTS:
                    return tuple(found)
        start = fence.end() if fence else start
    return tuple(found)


def _obliges(sentence: str) -> bool:
    if sentence.endswith(("?", "？")) and not _ASKS.match(sentence):
        return False
    return _OBLIGES.search(sentence) is not None


def _sentences(text: str) -> Iterator[str]:
    """Slices of the text: list items whole, other paragraphs cut at their full stops."""
    for paragraph, is_item in _paragraphs(text):
        if is_item:
            yield paragraph.strip()
            continue
        start = 0
        for stop in (*_STOP.finditer(paragraph), None):
            end = stop.end() if stop else len(paragraph)
            if sentence := paragraph[start:end].strip():
                yield sentence
            start = end


def _paragraphs(text: str) -> Iterator[tuple[str, bool]]:
    """(slice, is it a list item). A line goes on the one before it if it is indented below an item or wrapped."""
    start = end = at = 0
    above, is_item = "", False
    while at < len(text):
        stop = _line_end(text, at)
        line = text[at:stop]
        item = _ITEM.match(line)
        is_words = not line.isspace() and line != "" and not _is_pasted(line)
        if not is_words or item or start == end or not _goes_on(above, line, is_item=is_item):
            if end > start:
                yield text[start:end], is_item
            start = end = at + (item.end() if item else 0)
            is_item = item is not None
        if is_words:
            end = stop
        above, at = line, stop + 1
    if end > start:
        yield text[start:end], is_item


def _is_pasted(line: str) -> bool:
    head = line[:_MAX_LINE]
    return _PASTED.match(head) is not None or _ERROR_LINE.match(head.strip()) is not None


def _goes_on(above: str, line: str, *, is_item: bool) -> bool:
    if is_item:
        return line[:1] in " \t"
    return len(above) >= 50 and not above.rstrip().endswith((".", "!", "?", ":", "。", "！", "？", "："))
