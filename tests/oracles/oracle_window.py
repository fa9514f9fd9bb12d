"""Sliding windows, optionally dilated (Beltagy, Peters and Cohan 2020)."""

from fairseq_posenc.testing.reference import Oracle


def allowed(t, s, at):
    """Return whether a key is visible.

    `width` is the number of neighbours on the left and on the right together. Dilation skips neighbours and extends the window.
    """
    if at["heads"] is not None and str(at.head) not in at["heads"].split("/"):
        return True
    return abs(s - t) <= at["width"] // 2 * at["dilation"] and (s - t) % at["dilation"] == 0


ORACLES = [
    Oracle(
        "window",
        allowed=allowed,
        defaults={"width": 32, "dilation": 1, "heads": None},
        cases=[
            ({}, "encoder decoder"),
            ({"width": 2}, "encoder decoder"),
            ({"width": 4}, "encoder decoder"),
            ({"width": 2, "dilation": 2}, "encoder decoder"),
            ({"width": 6, "dilation": 3}, "encoder"),
            ({"width": 2, "heads": "0/3"}, "encoder decoder"),
        ],
    )
]
