"""Arguments that few calls give: each one counts, or is refused where it cannot."""
import numpy as np
import pytest

import pyflame as pf
from pyflame.nn.attention import SDPBackend, sdpa_kernel
from pyflame.utils.tensorboard import SummaryWriter, _joined

LAST = pf.zeros(2, 3, 4, 5).contiguous(memory_format=pf.channels_last)


@pytest.mark.parametrize("x, formats, order", [
    (pf.zeros(3, 4), True, (0, 1)), (pf.zeros(3, 4).t(), True, (1, 0)), (LAST, True, (0, 2, 3, 1)), (LAST, [pf.contiguous_format], (0, 2, 3, 1)), (pf.zeros(1, 2, 3, 4), False, (0, 1, 2, 3)),
    (pf.zeros(1, 2, 3, 4), [pf.contiguous_format, pf.channels_last], (0, 1, 2, 3)), (LAST[:1], [pf.contiguous_format, pf.channels_last], (0, 2, 3, 1)),
])
def test_the_order_of_dims(x, formats, order):
    assert x.dim_order(ambiguity_check=formats) == order


@pytest.mark.parametrize("x, formats", [(pf.zeros(1, 3), True), (pf.zeros(2, 1, 3, 3), True), (pf.zeros(3).expand(2, 3), True), (pf.zeros(2, 1, 3, 4), [pf.contiguous_format, pf.channels_last]),
                                        (pf.zeros(1, 2, 3, 4), [pf.channels_last])])
def test_an_ambiguous_order_of_dims(x, formats):
    with pytest.raises(RuntimeError, match=r"dim_order: several orders describe the memory; got shape \(.* with strides \(.*; expected one order; hint"):
        x.dim_order(ambiguity_check=formats)


@pytest.mark.parametrize("formats", ["x", 1, None, [1]])
def test_what_is_no_check_of_the_order(formats):
    with pytest.raises(TypeError, match="dim_order: ambiguity_check is neither a bool nor a list of memory formats; got"):
        pf.zeros(2, 3).dim_order(ambiguity_check=formats)


def test_resize_to_a_memory_format():
    x = pf.arange(12.0).resize_(1, 3, 2, 2, memory_format=pf.channels_last)
    assert x.shape == (1, 3, 2, 2) and x.stride() == (12, 1, 6, 3) and x[0].tolist() == [[[0, 3], [6, 9]], [[1, 4], [7, 10]], [[2, 5], [8, 11]]]
    y = pf.arange(6.0).resize_((1, 2, 1, 1, 3), memory_format=pf.channels_last_3d)
    assert y[0, :, 0, 0].tolist() == [[0, 2, 4], [1, 3, 5]]
    assert pf.zeros(1).resize_(1, 3, 2, 2, memory_format=pf.contiguous_format).stride() == (12, 4, 2, 1)
    assert pf.zeros(1).resize_as_(LAST).stride() == (60, 20, 5, 1)
    assert pf.zeros(1).resize_as_(LAST, memory_format=pf.preserve_format).stride() == LAST.stride()
    assert pf.zeros(1).resize_as_(LAST.contiguous(), memory_format=pf.channels_last).stride() == LAST.stride()


@pytest.mark.parametrize("sizes, layout", [((2, 3), pf.channels_last), ((1, 2, 3, 4), pf.channels_last_3d), ((1, 2, 3, 4), pf.preserve_format)])
def test_formats_that_do_not_fit_the_sizes(sizes, layout):
    with pytest.raises(ValueError, match=f"resize_: the memory format does not fit; got .* for {len(sizes)} sizes; expected contiguous_format, channels_last for 4 sizes"):
        pf.zeros(24).resize_(*sizes, memory_format=layout)


@pytest.mark.parametrize("backends, error, text", [("MATH", TypeError, "not a kernel of attention; got 'MATH'; expected an SDPBackend or a list of them"), ([SDPBackend.MATH, 1], TypeError, "not a kernel"),
                                                   (None, TypeError, "not a kernel"), ([], ValueError, r"no kernel is left; got an empty list; expected one SDPBackend or more")])
def test_kernels_of_attention_that_do_not_exist(backends, error, text):
    with pytest.raises(error, match="sdpa_kernel: " + text), sdpa_kernel(backends):
        pass
    with sdpa_kernel(SDPBackend.MATH), sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
        pass


@pytest.mark.parametrize("max_bins, counts, edges", [(None, [1] * 10, range(11)), (10, [1] * 10, range(11)), (20, [1] * 10, range(11)), (5, [2] * 5, range(0, 11, 2)), (4, [3, 3, 3, 1], [0, 3, 6, 9, 10]),
                                                     (9, [2] * 5, range(0, 11, 2)), (1, [10], [0, 10])])
def test_bins_of_a_histogram_are_joined(max_bins, counts, edges):
    have = _joined(np.ones(10, np.int64), np.arange(11.0), max_bins)
    assert have[0].tolist() == counts and have[1].tolist() == list(edges)


def test_the_bins_that_are_written(tmp_path):
    pytest.importorskip("tensorboard")
    with SummaryWriter(tmp_path) as writer:
        written = []
        writer._value = lambda *args, tag, histo: written.append(histo)
        writer.add_histogram("weights", pf.arange(10.0), bins=10, max_bins=4)
        writer.add_histogram("weights", pf.arange(10.0), bins=np.arange(11.0))
    assert list(written[0].bucket) == [3, 3, 3, 1] and len(written[0].bucket_limit) == 4 and len(written[1].bucket) == 10


def test_max_bins_below_one():
    with pytest.raises(ValueError, match="add_histogram: max_bins is not a number of bins; got 0; expected 1 or more, or None"):
        _joined(np.ones(10), np.arange(11.0), 0)
