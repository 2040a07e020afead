"""Errors that people meet in their first hour name what to write instead."""
import subprocess
import sys

import pytest

import pyflame as pf
import pyflame.nn as nn
import pyflame.nn.functional as F


@pytest.mark.parametrize("module, name, meant", [(F, "softpls", "softplus"), (pf, "sofmax", "softmax"), (nn, "Liner", "Linear"), (nn, "conv2d", "Conv2d"),
                                                 (nn, "relu", "ReLU"), (pf.optim, "Adm", "Adam"), (pf.optim, "ADAMW", "AdamW"),
                                                 (pf.optim.lr_scheduler, "StepLr", "StepLR"), (pf.linalg, "slove", "solve"), (pf.fft, "fftfreqs", "fftfreq"), (pf.special, "erfs", "erf"),
                                                 (pf.data, "DataLoder", "DataLoader"), (pf.utils.data, "DataLoder", "DataLoader"), (pf.distributions, "Norml", "Normal"),
                                                 (pf.llm, "LanguageModle", "LanguageModel"), (pf.models, "resnet5", "resnet50"), (pf.autograd, "gard", "grad"), (pf.memory, "find_batch_siz", "find_batch_size"),
                                                 (pf.cuda, "synchronise", "synchronize"), (pf.utils, "chekpoint", "checkpoint"),
                                                 (nn.init, "kaming_normal_", "kaiming_normal_"), (nn.utils, "clip_grad_nrom_", "clip_grad_norm_"), (pf.amp, "autocst", "autocast"),
                                                 (pf.profiler, "profil", "profile"), (pf.train, "Trianer", "Trainer"), (pf.func, "vmpa", "vmap"), (pf.random, "fork_rgn", "fork_rng"),
                                                 (pf.onnx, "exprot", "export"), (pf.tuning, "regsiter", "register")])
def test_misspelt_names(module, name, meant):
    with pytest.raises(AttributeError, match=f"^module '{module.__name__}' has no attribute '{name}'; did you mean '{meant}'\\?$"):
        getattr(module, name)


@pytest.mark.parametrize("module, name, meant", [(pf, "Linear", "pyflame.nn.Linear"), (pf, "Softmax", "pyflame.nn.Softmax"), (pf, "Adam", "pyflame.optim.Adam"),
                                                 (pf, "DataLoader", "pyflame.data.DataLoader"), (pf, "kl_divergence", "pyflame.distributions.kl_divergence"), (pf, "resnet18", "pyflame.models.resnet18"), (pf, "grad", "pyflame.autograd.grad"),
                                                 (nn, "mse_loss", "pyflame.nn.functional.mse_loss"), (nn, "Adam", "pyflame.optim.Adam"), (pf, "rocm", "rocm_is_available")])
def test_names_that_another_module_has(module, name, meant):
    import pyflame.nn.grad  # noqa: F401  a module is not the answer to pf.grad
    with pytest.raises(AttributeError, match=f"^module '{module.__name__}' has no attribute '{name}'; did you mean '{meant}'\\?$"):
        getattr(module, name)


def test_a_misspelt_name_of_distributed_is_named_when_it_is_called():
    with pytest.raises(NotImplementedError, match="^distributed.all_reduc: not available in PyFlame; did you mean 'all_reduce'\\? process groups"):
        pf.distributed.all_reduc(pf.ones(2))


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 proposes no names")
@pytest.mark.parametrize("formula, end", [("pf.nn.Liner", "; did you mean 'Linear'?"), ("pf.optim.Adm", "; did you mean 'Adam'?"), ("pf.ones(2).summ", ". Did you mean: 'sum'?")])
def test_a_printed_error_has_one_proposal(formula, end):
    run = subprocess.run([sys.executable, "-c", f"import pyflame as pf; {formula}"], capture_output=True, text=True, timeout=120)
    assert run.stderr.endswith(f"'{formula.rpartition('.')[2]}'{end}\n") and run.stderr.lower().count("did you mean") == 1


def test_names_that_resemble_none_and_private_names():
    for name in ("qqqqqqqq", "_sofmax"):
        assert not hasattr(pf, name)
        with pytest.raises(AttributeError, match=f"^module 'pyflame' has no attribute '{name}'$"):
            getattr(pf, name)


def test_a_power_is_two_asterisks():
    square = pf.elementwise("x^2")
    with pytest.raises(TypeError, match=r"^elementwise: only for integers; got float32; .*; hint: \^ is the exclusive or of bits; a power is \*\*, as in x \*\* 2$"):
        square(pf.ones(3))
    assert square(pf.arange(3)).tolist() == [2, 3, 0]


def test_a_program_that_is_not_there():
    run = subprocess.run([sys.executable, "-m", "pyflame.torch", "nofile.py"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr == "python -m pyflame.torch: can't open file 'nofile.py': no such file\n"


@pytest.mark.parametrize("given", [[nn.ReLU()], (nn.ReLU(),)])
def test_a_list_of_layers(given):
    with pytest.raises(TypeError, match=f"^Sequential: not a Module; got {type(given).__name__}; expected modules, .*; hint: Sequential\\(\\*layers\\)$"):
        nn.Sequential(given)


def test_a_dict_of_a_list_of_layers():
    with pytest.raises(TypeError, match="^ModuleDict.update: an item is no pair; got ReLU; expected a name and a value; hint: without names, use a ModuleList$"):
        nn.ModuleDict([nn.ReLU()])


def test_one_tensor_as_the_parameters():
    with pytest.raises(TypeError, match="^optimizer: params is a tensor; expected an iterable of tensors or of dicts; hint: put it into a list$"):
        pf.optim.SGD(pf.ones(2, requires_grad=True), lr=0.1)


def test_classes_in_the_last_dim():
    logits, target = pf.zeros(2, 5, 10), pf.zeros(2, 5, dtype=pf.int64)
    with pytest.raises(ValueError, match=r"expected target \(2, 10\); hint: the classes are dim 1; input.flatten\(0, -2\) and target.flatten\(\) are rows of classes$"):
        F.cross_entropy(logits, target)
    assert F.cross_entropy(logits.flatten(0, -2), target.flatten()).item() == pytest.approx(2.302585)
    with pytest.raises(ValueError, match=r"expected target \(2, 10\)$"):
        F.cross_entropy(logits, target[:1])


@pytest.mark.parametrize("name", ["flaot32", "bf16", "int63264"])
def test_a_misspelt_dtype_is_no_device(name):
    with pytest.raises(TypeError, match=f"^dtype: not a dtype of PyFlame; got '{name}'; expected float64, "):
        pf.zeros(2).to(name)
    with pytest.raises(ValueError, match="^device: no such device; got 'cpuu'"):
        pf.zeros(2).to("cpuu")


def test_a_target_of_integers():
    with pytest.raises(TypeError, match="the target is no float; got int64; expected a float dtype, as the input has; hint: target.float"):
        F.binary_cross_entropy_with_logits(pf.zeros(3), pf.zeros(3, dtype=pf.int64))


def test_channels_in_the_last_dim():
    conv = nn.Conv2d(3, 8, 3)
    with pytest.raises(ValueError, match=r"^conv2d: input channels do not fit the weight; got input \(2, 16, 16, 3\) .*; hint: channels stand before the spatial dims, as in \(N, C, H, W\); movedim\(-1, 1\)"):
        conv(pf.ones(2, 16, 16, 3))
    with pytest.raises(ValueError, match="expected 3 channels$"):
        conv(pf.ones(2, 4, 16, 16))
    assert conv(pf.ones(2, 16, 16, 3).movedim(-1, 1)).shape == (2, 8, 14, 14)


def test_cat_of_different_numbers_of_dims():
    with pytest.raises(ValueError, match=r"^cat: the tensors have different numbers of dims; got \(2, 3\) and \(3,\); expected 2 dims each; hint: unsqueeze\(\) adds a dim$"):
        pf.cat([pf.ones(2, 3), pf.ones(3)])


def test_a_tensor_of_none():
    with pytest.raises(TypeError, match=r"^tensor: wrong arguments; got \(NoneType\); .*; hint: the data are None, which a function without a return statement returns$"):
        pf.tensor(None)
