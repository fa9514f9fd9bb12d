from tests.report.conftest import posenc, small_files  # noqa: F401
