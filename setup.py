import runpy

from setuptools import find_packages, setup

SITE = ["sphinx>=7", "myst-parser>=3", "furo"]

setup(
    name="fairseq_posenc",
    version=runpy.run_path("fairseq_posenc/version.py")["__version__"],
    description="Position encodings for machine translation, as a fairseq plugin",
    license="MIT",
    packages=find_packages(include=["fairseq_posenc", "fairseq_posenc.*"]),
    package_data={"fairseq_posenc": ["registry/references.bib", "cli/templates/*.txt", "site/static/*"]},
    python_requires=">=3.10",
    # Lower bounds only; the versions that were tested together are in constraints.txt.
    install_requires=[
        "fairseq-fixed>=0.12.3",  # fairseq 0.12 that imports on Python 3.11 and later
        "torch>=2.4",  # the first whose safe loader can be taught fairseq's checkpoints
        "sacrebleu>=2.0",
        "sentencepiece",
        "subword-nmt>=0.3.8",
        "sacremoses>=0.2",  # the tokens of text that others have published figures on
        "conllu>=5.0",  # trees for methods that read them
        "scipy>=1.10",  # Student's t of a few seeds
        "tqdm",
        "pydantic>=2.5",  # the schema of score.json
        "tensorboard",
        "tabulate",
        "matplotlib>=3.7",
    ],
    extras_require={
        # posenc site: MyST reads the Markdown of docs/, Furo is a theme that asks no other host for anything
        "site": SITE,
        "floater": ["torchdiffeq>=0.2.3"],  # the solver of one method
        "completion": ["argcomplete>=3.1"],  # posenc completion
        # transformers and x-transformers are oracles of the parity tests: pinned ones, whose position code they know
        "test": [
            "pytest",
            "networkx",
            "pytest-xdist",
            "hypothesis",
            "ruff",
            "vermin",
            "torchdiffeq>=0.2.3",
            "argcomplete>=3.1",
            "transformers==4.47.1",
            "x-transformers==2.31.10",
            *SITE,
        ],
    },
    entry_points={"console_scripts": ["posenc = fairseq_posenc.cli:main"]},
)
