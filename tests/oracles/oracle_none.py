"""No position information: only the product of queries and keys."""

from fairseq_posenc.testing.reference import Oracle

ORACLES = [Oracle("none", cases=[({}, "encoder decoder cross")], real=True)]
