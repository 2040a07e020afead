"""amp.advise: which dtype on which GPU."""
import pytest

import pyflame as pf


@pytest.mark.parametrize("name, training, float8, words", [
    ("MI300X", pf.bfloat16, (pf.float8_e4m3fnuz, pf.float8_e5m2fnuz), ["bfloat16 multiplies at 8.0 times", "not the OCP's", "2.0 times the rate of bfloat16"]),
    ("MI355X", pf.bfloat16, (pf.float8_e4m3fn, pf.float8_e5m2), ["OCP's formats"]),
    ("MI100", pf.bfloat16, None, ["float16 is 2.0 times as fast as bfloat16 on this GPU"]),
    ("RX 7900 XTX", pf.bfloat16, None, ["bfloat16 multiplies at 2.0 times", "scaled_mm decodes them first", "float64 has 32 times less"]),
    ("RX 6900 XT", pf.float16, None, ["pf.amp.GradScaler", "no fast bfloat16", "There are no matrix cores"]),
    ("cpu", pf.float32, None, ["A CPU computes in float32"]),
])
def test_advice(name, training, float8, words):
    advice = pf.amp.advise(name)
    assert (advice.training, advice.inference, advice.float8) == (training, training, float8)
    for word in words:
        assert word in str(advice)


def test_a_name_that_is_not_in_the_table():
    with pytest.raises(ValueError, match="no such GPU in the table; got 'GTX 1'"):
        pf.amp.advise("GTX 1")
    with pytest.raises(ValueError, match="^advise: no such GPU in the table; got 'banana'; expected a name such as MI300X, .*, or an architecture such as gfx942, or a device") as e:
        pf.amp.advise("banana")
    assert "bytes" not in str(e.value)
    with pytest.raises(ValueError, match="^advise: the name of a GPU is empty"):
        pf.amp.advise("")


@pytest.mark.parametrize("name, training, float8", [("gfx942", pf.bfloat16, pf.float8_e4m3fnuz), ("GFX942:sramecc+:xnack-", pf.bfloat16, pf.float8_e4m3fnuz),
                                                    ("gfx950", pf.bfloat16, pf.float8_e4m3fn), ("gfx1030", pf.float16, None), ("sm_90", pf.bfloat16, pf.float8_e4m3fn)])
def test_an_architecture(name, training, float8):
    advice = pf.amp.advise(name)
    assert (advice.training, advice.float8 and advice.float8[0]) == (training, float8)


def test_a_gpu_whose_rates_are_not_known():
    advice = pf.amp.advise("RX 7700")
    assert advice.rates or "not known" in str(advice)


def test_the_current_device():
    assert pf.amp.advise().device == "cpu" or pf.get_device() != "cpu"
