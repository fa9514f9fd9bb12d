"""Training with several workers. Several processes on a CPU give the same result as one process.

torchrun or SLURM connects machines.
"""

import os
import signal
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.distributed import utils as distributed_utils

from tests.recipes.captions import RECIPE, assert_same_parameters
from tests.recipes.declared import run
from tests.recipes.process import environment, programs


@pytest.fixture(scope="module")
def one(prepared, tmp_path_factory):
    recipe = prepared.beside(tmp_path_factory.mktemp("one") / "out", DROPOUT="0")
    recipe.run("train")
    return recipe


@pytest.mark.slow
def test_two_processes_end_with_the_parameters_of_one(one, tmp_path):
    """The parameters are equal up to rounding. The processes are killed once, and continue from their checkpoint."""
    two = one.beside(tmp_path / "out", PROCS="2").start("train")
    two.wait_until(lambda: "num_updates=10," in two.log())
    two.kill()
    assert two.resumed(two.run("train"))[0] > 0
    assert "training on 2 devices" in two.log() and "training on 1 devices" in one.log()
    assert_same_parameters(one.state(), two.state(), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_others(one, tmp_path):
    two = one.beside(tmp_path / "out", PROCS="2").start("train")
    two.wait_until(lambda: "num_updates=6," in two.log())
    (worker,) = workers(two, rank=1)
    os.kill(worker, signal.SIGKILL)
    printed = two.finish(status=1)
    assert "failed on worker 1. For the output of all workers, see" in printed.splitlines()[-1]
    assert not workers(two, rank=0) and not workers(two, rank=1)
    two.run("train")
    assert_same_parameters(one.state(), two.state(), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_another_number_of_workers_is_another_setting(one):
    printed = one.start("train", PROCS="2").finish(status=1)
    assert "created with other settings" in printed and "WORKERS=1, now 2" in printed


def workers(recipe, rank):
    """Return the ids of the training processes that have this rank and read the data in the recipe's output folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:  # ended in between
            continue
        if str(recipe.out / "data") in words and words[words.index("--distributed-rank") + 1] == str(rank):
            found.append(int(path.parent.name))
    return found


def test_torchrun_gives_every_worker_its_rank(tmp_path):
    """The test simulates two machines with two GPUs each.

    Instead of training, every worker writes the values that fairseq would read.
    """
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("python", "torchrun"):
        gpus = 'case "$*" in *gpus.py*) echo 2; exit ;; esac'
        script(tools / name, f'#!/bin/sh\n{gpus}\nexec "{programs()}/{name}" "$@"\n')
    names = '"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"'
    line = f'print(*(os.environ[name] for name in ({names})), file=open("{tmp_path}/" + os.environ["RANK"], "w"))'
    script(tools / "fairseq-train", f"import os\n{line}\n")
    out = tmp_path / "out"
    (out / "data").mkdir(parents=True)
    (out / "data" / ".preprocess.done").touch()
    nodes = {"NNODES": "2", "GPUS": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    options = {"SIZE": "base", "METHODS": "none", "OUT": str(out), "POSENC_BIN": str(tools), **nodes}
    machines = [
        subprocess.Popen([RECIPE, "train"], env=environment(NODE_RANK=str(rank), **options), start_new_session=True)
        for rank in (0, 1)
    ]
    assert [machine.wait(timeout=120) for machine in machines] == [0, 0]
    for rank in range(4):
        assert (tmp_path / str(rank)).read_text().split() == [str(rank), "4", "127.0.0.1", nodes["MASTER_PORT"]]


def test_the_message_names_the_worker_that_failed_first(tmp_path):
    """The test simulates the training. Worker 1 fails, and worker 0 then fails without it."""
    tools, failed = tmp_path / "bin", tmp_path / "failed"
    tools.mkdir()
    script(
        tools / "python", f'#!/bin/sh\ncase $1 in */memory.py) shift ;; *) set -- {programs()}/python "$@" ;; esac\nexec "$@"\n'
    )
    worker_1 = f'echo no memory left; echo $$ > "{failed}.part"; mv "{failed}.part" "{failed}"; exit 1'
    worker_0 = f'until [ -e "{failed}" ]; do sleep 0.01; done; while kill -0 $(cat "{failed}"); do sleep 0.01; done; exit 1'
    script(tools / "fairseq-train", f'#!/bin/sh\ncase "$*" in *"-rank 1"*) {worker_1} ;; *) {worker_0} ;; esac\n')
    out = tmp_path / "out"
    (out / "data").mkdir(parents=True)
    (out / "data" / ".preprocess.done").touch()
    options = {"METHODS": "none", "OUT": str(out), "POSENC_BIN": str(tools), "PROCS": "2"}
    done = subprocess.run([RECIPE, "train"], env=environment(**options), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    output, message = done.stderr.splitlines()[-2:]
    assert output == "no memory left" and "the training failed on worker 1. For the output of all workers, see" in message


def script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def config(**given):
    """Return fairseq-train's configuration for these options."""
    plain = {"distributed_init_method": None, "tpu": False, "pipeline_model_parallel": False, "distributed_port": -1}
    return SimpleNamespace(**{**plain, "distributed_rank": 0, "distributed_no_spawn": False, "device_id": 0, **given})


def test_fairseq_reads_what_torchrun_sets(monkeypatch):
    for name, value in {"MASTER_ADDR": "m0", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    found = config(distributed_world_size=4)
    distributed_utils.infer_init_method(found)
    assert (found.distributed_init_method, found.distributed_rank, found.device_id) == ("env://", 3, 1)
    assert found.distributed_no_spawn


def test_fairseq_reads_what_srun_sets(monkeypatch, tmp_path):
    script(tmp_path / "scontrol", '#!/bin/sh\n[ "$*" = "show hostnames m[0-1]" ] && printf "m0\\nm1\\n"\n')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    slurm = {"NNODES": "2", "NTASKS_PER_NODE": "2", "STEP_NODELIST": "m[0-1]", "PROCID": "3", "LOCALID": "1"}
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    for name in ("MASTER_ADDR", "RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    found = config(distributed_world_size=4, distributed_port=29500)
    distributed_utils.infer_init_method(found)
    assert (found.distributed_init_method, found.distributed_rank, found.device_id) == ("tcp://m0:29500", 3, 1)
    assert found.distributed_no_spawn


@pytest.mark.parametrize("recipe", ["quickstart", "compare", "multi30k_uk/run", "wmt18/run"])
def test_every_recipe_with_rows_trains_on_several_machines_without_gpus(recipe):
    options = {"METHODS": "none", "SIZE": "tiny", "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "m0", "UNITS": "2"}
    if recipe == "quickstart":
        del options["SIZE"]
    done = run(recipe, **options)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "fairseq-train" in line]
    for words in ("torchrun --nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr m0", "--distributed-backend gloo", "--cpu"):
        assert words in line
    assert "fairseq-generate" not in done.stdout and line.endswith("train.log.machine1 ")


@pytest.mark.parametrize("per_machine", [1, 2])
def test_ranks_on_machines_without_gpus(monkeypatch, tmp_path, per_machine):
    """torchrun can number the machines in another order than the recipe.

    The recipe therefore passes the number of the machine in POSENC_NODE_RANK. With srun, the rank is SLURM_PROCID.
    """
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    ranks = {"WORLD_SIZE": 2 * per_machine, "LOCAL_WORLD_SIZE": per_machine, "LOCAL_RANK": per_machine - 1, "RANK": 0}
    for name, value in {"MASTER_ADDR": "m0", "MASTER_PORT": "29500", "POSENC_NODE_RANK": "1", **ranks}.items():
        monkeypatch.setenv(name, str(value))
    found = config(distributed_world_size=2 * per_machine)
    distributed_utils.infer_init_method(found)
    assert (found.distributed_init_method, found.distributed_rank, found.device_id) == ("env://", 2 * per_machine - 1, 0)
    monkeypatch.delenv("RANK")
    script(tmp_path / "scontrol", '#!/bin/sh\nprintf "m0\\nm1\\n"\n')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    slurm = {"NNODES": 2, "NTASKS_PER_NODE": per_machine, "STEP_NODELIST": "m[0-1]", "NODEID": 1}
    for name, value in {**slurm, "PROCID": 2 * per_machine - 1, "LOCALID": per_machine - 1}.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    found = config(distributed_world_size=2 * per_machine, distributed_port=29500)
    distributed_utils.infer_init_method(found)
    assert (found.distributed_init_method, found.distributed_rank, found.device_id) == ("tcp://m0:29500", 2 * per_machine - 1, 0)
    assert found.distributed_no_spawn and found.distributed_world_size == 2 * per_machine
