from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["fairseq_posenc", "fairseq_posenc.*"]), "fairseq_posenc.recipes"],
    py_modules=["fairseq_python314"],
)
