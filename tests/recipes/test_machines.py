"""Training on two machines, and failures of one machine. The machines are network namespaces with separate addresses."""

import re
import shutil
import socket
import subprocess
import time

import pytest

from tests.recipes import test_compare as compare
from tests.recipes import test_wmt18 as wmt18
from tests.recipes.captions import RECIPE, Recipe, assert_same_parameters
from tests.recipes.machines import Machine, Network, SlowNetwork
from tests.recipes.news import write_mirror
from tests.recipes.process import Process

pytestmark = pytest.mark.slow

#: 4 batches per update, shared by 1, 2 or 4 workers, and 16 updates
OPTIONS = {"DROPOUT": "0", "UNITS": "4", "BATCH": "512", "EPOCHS": "1", "SAVE_UPDATES": "4"}
CLOSE = {"rtol": 1e-3, "atol": 1e-3}  # several workers add gradients in another order than one process
EXACT = {"rtol": 0, "atol": 0}


def opened(kind=Network, **options):
    network = kind(**options)
    try:
        return network.open()
    except OSError as error:
        pytest.skip(f"needs network namespaces: {error}")


@pytest.fixture(scope="module")
def network():
    found = opened()
    yield found
    found.close()


@pytest.fixture
def link(network):
    yield network
    network.link("up")


@pytest.fixture(scope="module")
def one(network, prepared, tmp_path_factory):
    """Return a training run in one process."""
    recipe = prepared.beside(tmp_path_factory.mktemp("one") / "out", **OPTIONS)
    recipe.run("train")
    return recipe


class Pair:
    """The recipe multi30k_uk on machine 0 and machine 1, with one folder for each machine or one common folder."""

    def __init__(self, network, *recipes, **options):
        self.recipes = recipes if len(recipes) == 2 else recipes * 2
        self.machines = [
            Machine(network, side, RECIPE, recipe.out, **{**recipe.options, "DATA_FROM": str(recipe.corpus), **options})
            for side, recipe in enumerate(self.recipes)
        ]

    def start(self, *stages, sides=(0, 1), options=({}, {})):
        for side in sides:
            self.machines[side].start(*(stages or ("train",)), **options[side])
        return self

    def finish(self, statuses=(0, 0)):
        return [machine.finish(status) for machine, status in zip(self.machines, statuses)]

    def log(self):
        return self.recipes[0].log()

    def wait_until(self, pattern):
        """Wait until the log contains a new line with this text."""
        begin = len(self.log())
        self.machines[0].wait_until(lambda: re.search(pattern, self.log()[begin:]))

    def fail(self, *others):
        """Wait until all started machines have failed. Return the last line of each."""
        lines = []
        for machine in [*self.machines, *others]:
            if machine.process.returncode is None:
                printed = machine.finish(1)
                assert "Traceback" not in printed, printed
                lines.append(printed.splitlines()[-1])
        return lines


@pytest.fixture(scope="module")
def unmet(network, one, tmp_path_factory):
    """Start four training runs whose machines do not meet, each for a different reason.

    Return name -> pair of machines, and the time at which all of them must have ended. Machines wait for 3 seconds. If another
    program answers on the port, torchrun can wait without a limit. The recipe then stops torchrun 20 seconds after the end of
    these 3 seconds. Meanwhile, other tests run.
    """
    pairs = {}
    for at, name in enumerate(("without 1", "without 0", "wrong", "in use")):
        recipes = [one.beside(tmp_path_factory.mktemp("unmet") / "out") for _ in range(2)]
        pairs[name] = Pair(network, *recipes, WORKER_TIMEOUT="3", MASTER_PORT=str(29511 + at))
    held = ["ip", "netns", "exec", network.names[0], "python3", "-c"]
    script = "import socket; s = socket.create_server(('', 29514)); print('ready', flush=True); input()"
    with subprocess.Popen([*held, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as foreign:
        assert foreign.stdout.readline() == "ready\n"
        pairs["without 1"].start(sides=[0])
        pairs["without 0"].start(sides=[1])
        pairs["wrong"].start(options=({}, {"MASTER_ADDR": "10.77.0.9"}))
        pairs["in use"].start()
        yield pairs, time.monotonic() + 120  # without limits, this would take more than an hour
        foreign.stdin.close()


@pytest.fixture(scope="module")
def two(network, one, tmp_path_factory):
    """Return the training run of the fixture `one`, but with one process on each machine. The machines share a folder."""
    recipe = one.beside(tmp_path_factory.mktemp("two") / "out")
    sent = [network.sent(side) for side in (0, 1)]
    printed = Pair(network, recipe).start().finish()
    recipe.sent = sent_per_update(network, recipe.state(), sent)
    recipe.printed = printed
    return recipe


@pytest.mark.usefixtures("unmet")  # machines that do not meet begin to wait
def test_two_machines_end_with_the_parameters_of_one_process(one, two):
    assert_same_parameters(one.state(), two.state(), **CLOSE)
    folder = two.checkpoint().parent
    assert f"only machine 0 ({socket.gethostname()}, 10.77.0.1) writes checkpoints, to {folder}" in two.printed[1]
    assert not re.search("loss|WARNING", two.printed[1].replace("WARNING | fairseq_posenc.host.compat.machines", ""))


def test_to_the_last_bit_they_are_two_processes_of_one_machine(two, tmp_path):
    same = two.beside(tmp_path / "out", PROCS="2")
    same.run("train")
    assert_same_parameters(two.state(), same.state(), **EXACT)


def sent_per_update(network, state, before):
    """Return the number of bytes that each machine has sent per update, divided by the size of the gradients."""
    size = sum(tensor.numel() for name, tensor in state["model"].items() if "version" not in name) * 4
    # Both embeddings and the output projection share one table. The state contains this table under three names.
    size -= state["model"]["decoder.embed_tokens.weight"].numel() * 4 * 2
    updates = state["optimizer_history"][-1]["num_updates"]
    return [(network.sent(side) - before[side]) / updates / size for side in (0, 1)]


def test_an_update_sends_the_gradients_once(two):
    """The gradients are summed in two steps. In each step, a machine sends half of the gradients, and little other data."""
    assert all(1 < sent < 1.1 for sent in two.sent), two.sent


def test_half_precision_sends_half_of_it(network, one, tmp_path):
    recipe = one.beside(tmp_path / "out", EPOCHS="9")
    half = f"{one.options['TRAIN_OPTIONS']} --fp16 --fp16-init-scale 4 --max-update 8"
    before = [network.sent(side) for side in (0, 1)]
    Pair(network, recipe, TRAIN_OPTIONS=half).start().finish()
    sent = sent_per_update(network, recipe.state(), before)
    assert all(0.5 < times < 0.56 for times in sent), sent


def test_with_two_processes_and_a_folder_on_each_machine(network, one, tmp_path):
    """Machine 1 prepares its own data. The option RDZV replaces MASTER_ADDR."""
    first = one.beside(tmp_path / "first")
    second = Recipe(one.corpus, tmp_path / "second", **one.options)
    pair = Pair(network, first, second, PROCS="2", RDZV="10.77.0.1:29501")
    pair.machines[1].run("fetch", "prepare")
    before = [network.sent(side) for side in (0, 1)]
    printed = pair.start().finish()
    sent = sent_per_update(network, first.state(), before)
    # The four processes form a ring. In each of two steps, a machine sends 3/4 of the gradients.
    assert all(1.5 < times < 1.65 for times in sent), sent
    assert_same_parameters(one.state(), first.state(), **CLOSE)
    assert f"writes checkpoints, to {first.checkpoint().parent}" in printed[1]
    assert not list(second.out.rglob("*.pt")) and (second.checkpoint().parent / "train.log.machine1").exists()
    # the training run is complete, so machine 0 can run alone and does not need machine 1
    before = first.files(first.checkpoint().parent)
    assert "done before" in pair.machines[0].run("train") and first.files(first.checkpoint().parent) == before


def test_a_finished_training_without_its_stamp_trains_no_more(network, two, tmp_path):
    """Both machines lack the stamp of the training run (the file .train.done). Machine 1 has no checkpoints.

    The files are as if both machines had been killed directly before writing the stamp.
    """
    first, second = (two.beside(tmp_path / name, EPOCHS="9") for name in ("first", "second"))
    pair = Pair(network, first, second, TRAIN_OPTIONS=f"{two.options['TRAIN_OPTIONS']} --max-update 3")
    pair.start().finish()
    before = first.state()
    for recipe in (first, second):
        (recipe.checkpoint().parent / ".train.done").unlink()
    pair.start().finish()
    assert_same_parameters(before, first.state(), **EXACT)


def test_wmt18(network, tmp_path):
    write_mirror(tmp_path / "mirror")
    place = {"DATA_FROM": str(tmp_path / "mirror"), "CHECKSUMS": str(tmp_path / "mirror" / "sums")}
    options = {
        **wmt18.MICRO,
        **place,
        "DOWNLOADS": str(tmp_path / "downloads"),
        "DROPOUT": "0",
        "UPDATES": "8",
        "SAVE_UPDATES": "4",
    }
    one = Process(wmt18.RECIPE, tmp_path / "one", **options)
    one.run("fetch", "prepare")
    shutil.copytree(one.out, tmp_path / "two")
    one.run("train")
    machines = [Machine(network, side, wmt18.RECIPE, tmp_path / "two", **options) for side in (0, 1)]
    for machine in machines:
        machine.start("train")
    for machine in machines:
        machine.finish()
    assert_same_parameters(wmt18.state(one), wmt18.state(machines[0]), **CLOSE)


def test_compare(network, tmp_path):
    """Both machines read the user's text, and each machine has its own output folder. Machine 0 writes the table."""
    compare.write(tmp_path / "text")
    text = {"TRAIN": "train", "VALID": "valid"}
    options = {
        **compare.MICRO,
        **{name: str(tmp_path / "text" / part) for name, part in text.items()},
        "TESTS": f"news={tmp_path / 'text' / 'test2024'}",
        "SOURCE": "pt-BR",
        "TARGET": "en",
    }
    machines = [Machine(network, side, compare.RECIPE, tmp_path / str(side), **options) for side in (0, 1)]
    machines[1].run("prepare")
    for machine in machines:
        machine.start()
    other, table = [machine.finish() for machine in reversed(machines)]
    assert "my corpus" in table and "| none " in table
    assert "only machine 0" in other and not list((tmp_path / "1").rglob("checkpoint_*"))


# --- differences between machines ---


def test_a_difference_is_named_before_the_first_update(network, one, tmp_path):
    first, second = (one.beside(tmp_path / name) for name in ("first", "second"))
    for path in (second.out / "data").glob("train.*"):
        path.unlink()
    for language in ("en", "uk"):
        text = second.out / "text" / f"train.sub.{language}"
        text.write_text("".join(text.read_text().splitlines(keepends=True)[:-1]))
    (second.out / "data" / ".preprocess.done").unlink()
    second.run("prepare")
    machine = f"({socket.gethostname()}, 10.77.0.2)"
    pair = Pair(network, first, second).start(options=({}, {"LR": "1e-4"}))
    for line in pair.fail():
        assert f"machine 1 {machine} differs from machine 0 ({socket.gethostname()}, 10.77.0.1): " in line
        for found in ("train.en-uk.en is 299, not 300", "option --lr is [0.0001], not [0.003]", "and 5 more"):
            assert found in line, line
    assert not list(tmp_path.rglob("*.pt"))


# --- failures ---


def test_a_machine_that_does_not_come_is_named(unmet):
    pairs, end = unmet
    for machine in (machine for pair in pairs.values() for machine in pair.machines if machine.process):
        machine.process.wait(max(0, end - time.monotonic()))
    last = {
        name: [machine.finish(1).splitlines()[-1] for machine in pair.machines if machine.process] for name, pair in pairs.items()
    }
    missing = "not all of NNODES=2 machines connected to 10.77.0.1:{} within 3 seconds (only 1 connected). Missing: NODE_RANK=1."
    silent = "machine 1: no answer from machine 0 at {} within 3 seconds. Check the address"
    assert missing.format(29511) in last["without 1"][0]
    assert silent.format("10.77.0.1:29512") in last["without 0"][0]
    assert missing.format(29513) in last["wrong"][0] and silent.format("10.77.0.9:29513") in last["wrong"][1]
    assert "machine 0: port 29514 is in use." in last["in use"][0] and silent.format("10.77.0.1:29514") in last["in use"][1]


def test_killed_at_any_moment_the_others_end_and_all_resume(network, two, tmp_path):
    recipe = two.beside(tmp_path / "out")
    pair = Pair(network, recipe)
    moments = [
        (1, r"num_updates=3,"),  # before the first checkpoint
        (0, r"Saving checkpoint to .*/checkpoint_1_8\.pt"),
        (1, r"begin validation"),
    ]
    for killed, moment in moments:
        pair.start()
        pair.wait_until(moment)
        pair.machines[killed].kill()
        (line,) = pair.fail()
        assert f"training ended on machine {1 - killed}: lost the connection to machine {killed} (" in line
        assert "the training continues from its last checkpoint" in line
    printed = pair.start().finish()
    assert recipe.resumed(printed[0])[0] >= 4
    assert_same_parameters(two.state(), recipe.state(), **EXACT)


def test_a_cut_cable_is_an_end_within_the_limit(link, two, tmp_path):
    recipe = two.beside(tmp_path / "out")
    pair = Pair(link, recipe, WORKER_TIMEOUT="6").start()
    pair.wait_until(r"num_updates=6,")
    link.link("down")
    began = time.monotonic()
    lines = pair.fail()
    assert time.monotonic() - began < 60
    for side, line in enumerate(lines):
        assert f"training ended on machine {side}: no answer from machine {1 - side} (" in line and "within 6 seconds" in line
    link.link("up")
    pair.start(options=({"WORKER_TIMEOUT": "60"},) * 2).finish()
    assert_same_parameters(two.state(), recipe.state(), **EXACT)


def test_a_slow_link_that_is_cut_for_5_seconds_changes_nothing(two, tmp_path):
    """Packets from machine 0 to machine 1 take 20 ms."""
    network = opened(SlowNetwork, delay=0.02)
    try:
        recipe = two.beside(tmp_path / "out")
        pair = Pair(network, recipe).start()
        pair.wait_until(r"num_updates=3,")
        network.cut = True
        time.sleep(5)
        network.cut = False
        pair.finish()
    finally:
        network.close()
    assert_same_parameters(two.state(), recipe.state(), **EXACT)


def test_a_full_disk_of_machine_0_is_named_and_loses_nothing(network, two, tmp_path):
    recipe = two.beside(tmp_path / "out")
    shutil.rmtree(recipe.out / "text")
    kept = tmp_path / "kept"
    recipe.out.rename(kept)
    recipe.out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "posenc", recipe.out], check=True)
    try:
        shutil.copytree(kept, recipe.out, dirs_exist_ok=True)
        pair = Pair(network, recipe).start()
        pair.wait_until(r"Saved checkpoint .*/checkpoint_1_4\.pt")
        filler = recipe.out / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(1 << 20))
        lines = pair.fail()
        assert re.search("training ended on machine 0: .*No space left on device", lines[0])
        assert "training ended on machine 1: lost the connection to machine 0 (" in lines[1]
        filler.unlink()
        pair.start().finish()
        assert_same_parameters(two.state(), recipe.state(), **EXACT)
    finally:
        subprocess.run(["umount", "-l", recipe.out], check=True)


def test_a_machine_that_comes_back_joins_again(network, two, tmp_path):
    """Machine 1 is killed and started again. On machine 0, no command is started again."""
    recipe = two.beside(tmp_path / "out")
    pair = Pair(network, recipe, RDZV="10.77.0.1:29505", MAX_RESTARTS="2").start()
    pair.wait_until(r"num_updates=6,")
    pair.machines[1].kill()
    pair.start(sides=[1])
    pair.finish()
    assert_same_parameters(two.state(), recipe.state(), **EXACT)
