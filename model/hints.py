"""Near misses: what the writer probably meant."""

from collections.abc import Iterable

_MOST_KNOWN, _LONGEST = 300, 80
"""Comparing grows with both; beyond this nobody expects a suggestion."""


def near(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `word` is most likely a misspelling of, or None."""
    from difflib import get_close_matches

    candidates = sorted(set(known) - {word})
    if len(candidates) > _MOST_KNOWN or len(word) > _LONGEST:
        return None
    folded = {candidate.lower().replace("_", "").replace("-", ""): candidate for candidate in reversed(candidates)}
    plain = word.lower().replace("_", "").replace("-", "")
    if plain in folded:
        return folded[plain]
    matches = get_close_matches(word, candidates, n=1, cutoff=0.7)
    longer = (candidate for candidate in candidates if len(word) > 1 and candidate.startswith(word))
    return matches[0] if matches else next(longer, None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or nothing."""
    match = near(word, known)
    return f"did you mean {match!r}?" if match else ""


def listing(names: Iterable[str], *, most: int = 8) -> str:
    """At most `most` sorted names in quotes, with the number of those left out; `nothing` when there are none."""
    ordered = sorted(names)
    shown = ", ".join(repr(name) for name in ordered[:most])
    rest = len(ordered) - most
    return (f"{shown} and {rest} more" if rest > 0 else shown) or "nothing"
