"""Every method, site and option has an oracle."""

import pytest

import fairseq_posenc as posenc
from fairseq_posenc.registry import spec as parsing

from .cases import ORACLES


@pytest.mark.parametrize("name", posenc.names())
def test_every_method_has_an_oracle(name):
    own = [oracle for oracle in ORACLES if oracle.name == name]
    assert own, f"{name} needs tests/oracles/oracle_{name}.py"
    sites = {site for oracle in own for _, sites in oracle.cases for site in sites.split()}
    assert sites == set(posenc.card(name).all_sites)
    options = {row[0] for row in parsing.option_rows(name)} - {"layers"}  # `layers` is the same option for every method
    assert options == {option for oracle in own for given, _ in oracle.cases for option in given}
    for oracle in own:
        assert options == set(oracle.defaults)


def test_every_oracle_has_a_method():
    assert {oracle.name for oracle in ORACLES} == set(posenc.names())
