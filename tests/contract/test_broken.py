"""Tests of the checks: every broken method fails the check for its error, and the correct methods pass all checks."""

import pytest

from fairseq_posenc.testing import checks_attention as attention
from fairseq_posenc.testing import checks_decoding as decoding
from fairseq_posenc.testing import checks_geometry as geometry
from fairseq_posenc.testing import checks_numerics as numerics
from fairseq_posenc.testing import checks_parameters as parameters
from fairseq_posenc.testing.models import fixed
from tests.contract import broken
from tests.contract.cases import Case, registered, standalone

CHECKS = [
    *decoding.RUNNING,
    geometry.check_order,
    geometry.check_shift,
    geometry.check_uncounted,
    geometry.check_length,
    geometry.check_far,
    geometry.check_fractions,
    parameters.check_count,
    parameters.check_flags,
    parameters.check_gradients,
    parameters.check_state_dict,
    parameters.check_effect,
    parameters.check_layers,
    numerics.check_half,
    numerics.check_repeatable,
    numerics.check_checkpointing,
    attention.check_weights,
    attention.check_kernels,
    attention.check_blocks,
    attention.check_attention_padding,
]
AIMED = [
    (attention.check_attention_padding, broken.Columns, "encoder"),
    (attention.check_attention_padding, broken.Columns, "decoder"),
    (geometry.check_uncounted, broken.CountedOnly, "encoder"),
    (decoding.check_padding, broken.LengthDependent, "encoder"),
    (decoding.check_padding, broken.LengthDependent, "cross"),
    (decoding.check_incremental, broken.LengthDependent, "decoder"),
    (decoding.check_causality, broken.LeaksFuture, "decoder"),
    (decoding.check_causality, broken.ForgetsCausality, "decoder"),
    (decoding.check_padding, broken.ForgetsPadding, "encoder"),
    (decoding.check_padding, broken.ForgetsPadding, "cross"),
    (decoding.check_full_context, broken.ForgetsPadding, "decoder"),
    (attention.check_attention_padding, broken.ForgetsPadding, "encoder"),
    (decoding.check_batch, broken.MixesSentences, "encoder"),
    (decoding.check_batch, broken.MixesSentences, "decoder"),
    (decoding.check_incremental, broken.StaysWhenBeamsMove, "decoder"),
    (decoding.check_incremental, broken.ForgetsItsState, "decoder"),
    (parameters.check_gradients, broken.UnusedParameter, "encoder"),
    (parameters.check_effect, broken.UnusedParameter, "encoder"),
    (parameters.check_gradients, broken.MultipliedByZero, "cross"),
    (parameters.check_gradients, broken.CutsTheGradient, "decoder"),
    (parameters.check_count, broken.WrongCount, "encoder"),
    (parameters.check_flags, broken.NotLearnable, "encoder"),
    (parameters.check_flags, broken.NotRecurring, "encoder"),
    (parameters.check_flags, broken.NotWithEmbeddings, "encoder"),
    (parameters.check_effect, broken.NoEffect, "encoder"),
    (parameters.check_effect, broken.NoEffect, "decoder"),
    (parameters.check_effect, broken.NoEffect, "cross"),
    (parameters.check_state_dict, broken.SavesItsTable, "encoder"),
    (geometry.check_order, broken.NoEffect, "encoder"),
    (geometry.check_order, broken.NoEffect, "decoder"),
    (geometry.check_order, broken.NoEffect, "cross"),
    (geometry.check_direction, broken.TellsNoDirection, "encoder"),
    (geometry.check_direction, broken.ClaimsNoDirection, "encoder"),
    (geometry.check_shift, broken.RotaryClaimsAbsolute, "encoder"),
    (geometry.check_shift, broken.RotaryClaimsAbsolute, "decoder"),
    (geometry.check_far, broken.RotaryClaimsClipping, "encoder"),
    (parameters.check_flags, broken.NotStochastic, "encoder"),
    (parameters.check_flags, broken.ClaimsNoise, "encoder"),
    (parameters.check_flags, broken.AddsALossInSecret, "encoder"),
    (parameters.check_flags, broken.AddsALossInSecret, "decoder"),
    (parameters.check_flags, broken.ClaimsALoss, "encoder"),
    (parameters.check_flags, broken.AddsALossWithoutAGradient, "encoder"),
    (geometry.check_fractions, broken.IndexesATable, "encoder"),
    (parameters.check_rescale, broken.SquaresScores, "decoder"),
    (parameters.check_rescale, broken.ReadsQueries, "encoder"),
    (parameters.check_layers, broken.DiffersBetweenLayers, "encoder"),
    (parameters.check_layers, broken.DiffersBetweenLayers, "cross"),
    (parameters.check_effect, broken.ClaimsNothing, "encoder"),
    (attention.check_weights, broken.MasksForNothing, "encoder"),
    (geometry.check_shift, broken.NotRelative, "encoder"),
    (geometry.check_shift, broken.NotRelative, "cross"),
    (geometry.check_shift, broken.NotAbsolute, "decoder"),
    (geometry.check_shift, broken.NoEffect, "cross"),
    (geometry.check_length, broken.NotUnbound, "encoder"),
    (geometry.check_length, broken.NotUnbound, "decoder"),
    (geometry.check_length, broken.NotLimited, "encoder"),
    (geometry.check_length, broken.NotLimited, "cross"),
    (geometry.check_length, broken.DependsOnTheLimit, "encoder"),
    (geometry.check_far, broken.NotClipped, "encoder"),
    (geometry.check_far, broken.Clipped, "encoder"),
    (numerics.check_half, broken.HalfPositions, "encoder"),
    (numerics.check_half, broken.HalfPositions, "decoder"),
    (numerics.check_repeatable, broken.ChangesItself, "encoder"),
    (numerics.check_repeatable, broken.ChangesItsTable, "encoder"),
    (numerics.check_repeatable, broken.ChangesItsBuffer, "decoder"),
    (numerics.check_repeatable, broken.RandomScores, "cross"),
    (numerics.check_checkpointing, broken.CountsCalls, "encoder"),
    (attention.check_kernels, broken.RandomScores, "encoder"),
    (attention.check_blocks, broken.ValuesOfColumns, "encoder"),
    (attention.check_weights, broken.ChangesWeights, "encoder"),
    (attention.check_weights, broken.MaskOfInfinities, "encoder"),
    (attention.check_fully_masked, broken.MaskOfInfinities, "encoder"),
    (attention.check_attention_steps, broken.FixesPositions, "cross"),
]


def named(value) -> str:
    return value if isinstance(value, str) else value.__name__.removeprefix("check_")


@pytest.fixture(autouse=True)
def fresh():
    """Clear the cache of models after each test, because another class can have the same name."""
    yield
    fixed.cache_clear()


@pytest.mark.parametrize("check, method, site", AIMED, ids=named)
def test_broken_method_fails(check, method, site):
    with registered(method), pytest.raises(AssertionError) as found:
        check(Case(method.card.name, site))
    assert str(found.value)


@pytest.mark.parametrize(
    "method, site",
    [(broken.LimitedTooEarly, "encoder"), (broken.WidensEverything, "encoder"), (broken.AddsANumber, "decoder")],
    ids=named,
)
def test_broken_method_stops(method, site):
    """With these methods, the model raises an exception before an assertion of the check can fail."""
    check = {
        broken.LimitedTooEarly: geometry.check_length,
        broken.WidensEverything: numerics.check_half,
        broken.AddsANumber: parameters.check_flags,
    }[method]
    with registered(method), pytest.raises((ValueError, RuntimeError)) as found:
        check(Case(method.card.name, site))
    assert str(found.value)


@pytest.mark.parametrize("check", [decoding.check_incremental, attention.check_attention_steps], ids=named)
def test_bias_of_words_that_does_not_say_so_stops(check):
    with registered(broken.ReadsContent), pytest.raises(TypeError, match="NoneType"):
        check(Case("reads_content", "decoder"))


def test_a_wrong_count_names_both_numbers():
    with registered(broken.WrongCount), pytest.raises(AssertionError) as found:
        parameters.check_count(Case("wrong_count", "encoder"))
    assert str(found.value).splitlines()[0] == "wrong_count has 8 parameters, but the card claims 16 (d=16, h=4, L=2, n=64)"


def test_ignored_option_fails():
    with registered(broken.IgnoresAnOption), pytest.raises(AssertionError, match="does what") as found:
        parameters.check_options(Case("ignores_an_option:strong=true", "encoder"))
    assert "strong=true" in str(found.value)


SOUND = [(check, broken.Sound, site) for site in ("encoder", "decoder", "cross") for check in CHECKS]
# a method with its own kernel has no scores
SOUND += [(check, broken.OwnKernel, "encoder") for check in CHECKS if check is not geometry.check_far]


@pytest.mark.parametrize("check, method, site", SOUND, ids=named)
def test_sound_method_passes(check, method, site):
    with registered(method):
        assert check(Case(method.card.name, site)) is None


@pytest.mark.parametrize("check", [*decoding.RUNNING, attention.check_attention_steps], ids=named)
@pytest.mark.parametrize("method", [broken.RunningSum, broken.OwnKernel, broken.Sound, broken.SaysThatItReadsContent], ids=named)
def test_sound_decoder_passes(check, method):
    with registered(method):
        case = Case(method.card.name, "decoder")
        if check is not attention.check_attention_steps or standalone(case):
            assert check(case) is None
