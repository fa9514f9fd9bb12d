"""posenc check: its output for each method, and its errors."""

import re

import pytest

from fairseq_posenc import registry
from fairseq_posenc.cli import main
from fairseq_posenc.registry.declarations import declarations


def lines(capsys, *arguments):
    assert main(["check", *arguments]) == 0
    return [line.split("\t") for line in capsys.readouterr().out.splitlines()]


def refusal(capsys, *arguments):
    assert main(["check", *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    return error.strip()


def test_a_spec_stands_for_encoder_and_decoder(capsys):
    assert lines(capsys, "t5:buckets=16") == [["t5:buckets=16", "encoder t5:buckets=16", "decoder t5:buckets=16", "cross none"]]


def test_a_row_may_name_its_sites(capsys):
    row = "encoder=shaw:max_distance=4+learned;cross=t5"
    assert lines(capsys, row) == [[row, "encoder shaw:max_distance=4+learned", "decoder none", "cross t5"]]
    assert refusal(capsys, "t5", "encoder=t5;decoder=t5").endswith(
        "encoder=t5;decoder=t5: this is the same model as t5. Expected different models. Remove one of the two."
    )
    assert "sinusoidal: not defined at site cross" in refusal(capsys, "cross=sinusoidal")


@pytest.mark.parametrize(
    "spec",
    [
        "t5:layers=0/2",
        "t5:layers=0-1/2-3",
        "encoder=segments:separator=</s>",
        "encoder=t5:layers=0/2;cross=shaw",
        "none+t5:layers=0/1",
    ],
)
def test_a_spec_may_have_slashes(capsys, spec):
    assert lines(capsys, spec)[0][0] == spec


@pytest.mark.parametrize("path", ["folder/method", "/nowhere/t5:layers=0/2"])
def test_a_path_that_is_not_there_is_one_line(capsys, path):
    assert path.split(":")[0] in refusal(capsys, path)


@pytest.mark.parametrize(
    "row", ["encoder=t5;encoder=rope", "encoder=t5;rope", "encoder=", "decoder=t5;deckoder=rope", "cross=t5;"]
)
def test_a_wrong_row_is_one_line(capsys, row):
    assert "Expected encoder=SPEC;cross=SPEC, with each of the sites encoder, decoder, cross" in refusal(capsys, row)


def test_a_method_of_the_user_has_a_checksum_that_changes_with_its_file(capsys, tmp_path, monkeypatch):
    assert main(["new", "slope", "--folder", str(tmp_path)]) == 0
    capsys.readouterr()
    codes = []
    for addition in ("", "# another equation\n"):
        file = tmp_path / "slope.py"
        file.write_text(file.read_text() + addition)
        monkeypatch.setenv("POSENC_METHODS", str(file))
        declarations.cache_clear()
        own, tree, built_in = lines(capsys, "slope+rope", "encoder=tpe+slope", "rope")
        assert own[1:-1] == ["encoder slope+rope", "decoder slope+rope", "cross none"]
        assert own[-1] == tree[-1] and tree[-2] == "side heads" and built_in[-1] == "cross none"
        codes.append(own[-1])
    declarations.cache_clear()
    assert re.fullmatch(r"(code [0-9a-f]{8}\n){2}", "\n".join([*codes, ""])) and codes[0] != codes[1]


def test_the_checksum_of_a_method_contains_the_files_that_it_imports(capsys, tmp_path, monkeypatch):
    """A file of the same folder that the method does not import, such as another method, is not in the checksum."""
    assert main(["new", "slope", "--folder", str(tmp_path)]) == 0
    capsys.readouterr()
    file = tmp_path / "slope.py"
    file.write_text(f"from slope_rates import RATE\n{file.read_text()}")
    for name, text in {"slope_rates": "import slope_base\nRATE = 1", "slope_base": "", "slope_unread": ""}.items():
        (tmp_path / f"{name}.py").write_text(f"{text}\n")
    monkeypatch.setenv("POSENC_METHODS", str(file))
    monkeypatch.syspath_prepend(tmp_path)
    codes = []
    for changed in (None, "slope_unread", "slope_rates", "slope_base"):
        if changed:
            (tmp_path / f"{changed}.py").write_text(f"{(tmp_path / f'{changed}.py').read_text()}# changed\n")
        declarations.cache_clear()
        codes.append(lines(capsys, "slope")[0][-1])
    declarations.cache_clear()
    assert codes[0] == codes[1] and len(set(codes)) == 3


def test_an_architecture_has_its_own_spec_at_every_site(capsys):
    assert lines(capsys, "none", "posenc_xpos") == [
        ["none", "encoder none", "decoder none", "cross none"],
        ["posenc_xpos", "encoder rope", "decoder xpos", "cross none"],
    ]


@pytest.mark.parametrize(("size", "layers"), [("tiny", "0"), ("small", "0/1"), ("base", "0/1/2/4/5")])
def test_the_layers_of_an_architecture_depend_on_the_size(capsys, size, layers):
    [[_, encoder, *_]] = lines(capsys, "posenc_rope_window", "--size", size)
    assert encoder.endswith(f"+window:width=64,layers={layers}")


def test_an_architecture_may_be_more_than_its_specs(capsys):
    found = lines(capsys, "posenc_universal", "posenc_universal_halting", "posenc_complex_transformer", "--size", "tiny")
    assert [name for name, *_ in found] == ["posenc_universal", "posenc_universal_halting", "posenc_complex_transformer"]
    assert found[0][1:] == found[1][1:]


def test_all_is_every_architecture_once(capsys):
    """`all` leaves out posenc_alibi_symmetric, because posenc_alibi is the same model."""
    found = [name for name, *_ in lines(capsys, "all", "--size", "tiny", "--length", "64")]
    plain = [name for name in found if not name.endswith("@random")]
    # documents need a separator, so methods for documents are left out
    alone = [name for name in registry.names() if not registry.card(name).documents]
    assert plain == [f"posenc_{name}" for name in alone if name != "alibi_symmetric"]
    controls = [name.removesuffix("@random") for name in found if name not in plain]
    assert controls == [name for name in plain if read(name)]  # each method that reads side files has a control


def read(architecture):
    """Return the kinds of side files that the methods of an architecture read, for example the dependency heads.

    The cards of the methods declare these kinds.
    """
    methods = "+".join(registry.card(architecture.removeprefix("posenc_")).specs.values()).split("+")
    return {kind for name in methods for side in registry.card(name.partition(":")[0]).side_inputs for kind in side.files}


def test_what_is_read_beside_the_words_is_said(capsys):
    (tree, control, plain) = lines(capsys, "posenc_tpe", "posenc_tpe@random", "t5")
    assert tree[-1] == control[-1] == "side heads" and tree[1:] == control[1:] and len(plain) == len(tree) - 1


def test_the_method_of_an_architecture_may_have_options(capsys):
    (graph, control) = lines(capsys, "posenc_graformer:graph=edges", "posenc_graformer:graph=edges@random", "--cards-only")
    assert graph[1:] == ["encoder sinusoidal+graformer:graph=edges", "decoder sinusoidal", "cross none", "side edges"]
    assert control[1:] == graph[1:]
    line = refusal(capsys, "posenc_complex_transformer:learned=false")
    assert "the architecture posenc_complex_transformer has no options in its name" in line
    assert "Expected one of tree, edges" in refusal(capsys, "posenc_graformer:graph=dog")


def test_methods_whose_side_files_are_not_there(capsys):
    line = refusal(capsys, "posenc_tpe", "--side-files", "order")
    assert line == "posenc: posenc_tpe: the data has no side files of the required kinds (heads). Create them with posenc side."
    assert not any(map(read, (name for name, *_ in lines(capsys, "all", "--side-files"))))
    found = [name for name, *_ in lines(capsys, "all", "--only-readers", "--side-files", "order", "--size", "tiny")]
    assert found == ["posenc_xl_pe", "posenc_xl_pe@random"]


@pytest.mark.parametrize(
    "methods, problem",
    [
        (["shw"], "'shw': unknown. Did you mean 'shaw'?"),
        (["posenc_shw"], "architecture 'posenc_shw': method 'shw': unknown. Did you mean 'shaw'?"),
        (["posenc_t5_tiny"], "architecture 'posenc_t5_tiny': the name contains a size. Expected posenc_t5."),
        (["posenc_transformer_tiny"], "Expected posenc_NAME, without a size."),
        (["t5:layers=2", "--size", "tiny"], "there is no layer 2. Expected layers 0 to 1."),
        (["t5", "t5"], "t5: given twice. Expected each method once."),
        (["t5", "t5:buckets=32"], "t5:buckets=32: this is the same model as t5. Expected different models."),
        (["posenc_t5", "t5"], "t5: this is the same model as posenc_t5. Expected different models."),
        (["t5@random"], "t5@random: t5 does not read the structure of sentences. Remove @random."),
        (["posenc_tpe@random", "posenc_tpe@random"], "posenc_tpe@random: given twice"),
        (["shaw+gaussian"], "gaussian replaces the attention kernel"),
    ],
    ids=str,
)
def test_what_is_wrong_is_one_line(capsys, methods, problem):
    assert problem in refusal(capsys, *methods)


def test_all_problems_are_listed(capsys):
    line = refusal(capsys, "shw", "t5", "ropo")
    assert "'shaw'" in line and "'rope'" in line
