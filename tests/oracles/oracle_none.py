"""No position information: the product of queries and keys alone."""

from fairseq_posenc.testing.reference import Oracle

ORACLES = [Oracle("none", cases=[({}, "encoder decoder cross")], real=True)]
