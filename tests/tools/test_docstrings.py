"""Every public name has a docstring and an example that CI runs. tools/site/names.py says which names are public."""
import inspect
import pathlib
import re
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "site"))

import names  # noqa: E402
import uses  # noqa: E402

import pyflame  # noqa: E402

INVENTORY = names.inventory(pyflame)


def test_every_public_name_has_a_docstring():
    assert len(INVENTORY) > 1000
    missing = list(names.without_docstring(INVENTORY))
    assert not missing, f"without a docstring: {', '.join(missing)}"


SHORTEST = 12  # words; a property may do with fewer
SHORTEST_PROPERTY = 4


def short_docstrings(entries):
    """Each public function, class, method or property whose docstring has too few words, with the number of its words."""
    for path, entry in entries.items():
        if entry.kind == "data":
            continue
        texts = [(path, entry.value, names.doc_of(entry.value))]
        texts += [(f"{path}.{name}", value, names.member_doc(entry.value, name)) for name, value in entry.members.items()]
        for name, value, text in texts:
            if len(text.split()) < (SHORTEST_PROPERTY if isinstance(value, property) else SHORTEST):
                yield name, len(text.split())


def test_docstrings_are_more_than_a_name():
    short = [f"{name} ({count})" for name, count in short_docstrings(INVENTORY)]
    assert not short, f"{len(short)} docstrings have fewer than {SHORTEST} words ({SHORTEST_PROPERTY} for a property): {', '.join(short)}"


def test_a_short_docstring_is_found():
    class Short:
        """Too few words."""

        def method(self):
            """Too few words."""

        def long(self):
            """This one has the words that the bound asks for, and even some more."""

        @property
        def value(self):
            """The value that it has."""

    entries = {"pyflame.Short": names.Entry("pyflame.Short", Short)}
    assert list(short_docstrings(entries)) == [("pyflame.Short", 3), ("pyflame.Short.method", 3)]


ERRORS = re.compile(r"error|raise|refus|\bfails?\b|warns", re.IGNORECASE)
# Names whose docstrings say nothing of errors yet. Take names out of it, and add none.
SILENT = set(
    """
pyflame.Event pyflame.Generator pyflame.Stream pyflame.Tensor pyflame.acos pyflame.acosh pyflame.adaptive_avg_pool2d pyflame.adaptive_max_pool1d
    pyflame.alias_copy pyflame.angle pyflame.arcsin pyflame.arcsinh pyflame.arctan pyflame.arctanh pyflame.argmax pyflame.argmin pyflame.argsort
    pyflame.argwhere pyflame.as_strided_scatter pyflame.as_tensor pyflame.asarray pyflame.atleast_1d pyflame.atleast_2d pyflame.atleast_3d
    pyflame.bartlett_window pyflame.batch_matmul pyflame.binomial pyflame.blackman_window pyflame.can_cast pyflame.cdist pyflame.chain_matmul
    pyflame.checkpoint pyflame.cholesky_inverse pyflame.cholesky_solve pyflame.chunk pyflame.clamp_max pyflame.clamp_min pyflame.clip_grad_norm_
    pyflame.clone pyflame.col2im pyflame.conj pyflame.conj_physical pyflame.constant_pad_nd pyflame.conv1d pyflame.conv2d pyflame.conv3d
    pyflame.conv_transpose1d pyflame.conv_transpose2d pyflame.conv_transpose3d pyflame.copysign pyflame.cos pyflame.cosh pyflame.cov pyflame.cummax
    pyflame.cummin pyflame.cumprod pyflame.cumsum pyflame.deg2rad pyflame.detach_copy pyflame.device pyflame.device_info pyflame.diag pyflame.diag_embed
    pyflame.diagonal pyflame.diagonal_copy pyflame.diagonal_scatter pyflame.dropout pyflame.dstack pyflame.embedding pyflame.empty pyflame.empty_like
    pyflame.empty_strided pyflame.equal pyflame.exp pyflame.exp2 pyflame.expand_copy pyflame.expm1 pyflame.eye pyflame.fill pyflame.finfo pyflame.flipud
    pyflame.float_power pyflame.fmod pyflame.fork_rng pyflame.frexp pyflame.from_dlpack pyflame.full pyflame.full_like pyflame.get_autocast_dtype
    pyflame.grid_sampler pyflame.grid_sampler_2d pyflame.grid_sampler_3d pyflame.gru pyflame.gru_cell pyflame.hamming_window pyflame.hann_window
    pyflame.histogram pyflame.histogramdd pyflame.im2col pyflame.index_add pyflame.index_fill pyflame.index_reduce pyflame.inference_mode pyflame.inner
    pyflame.is_autocast_enabled pyflame.is_complex pyflame.is_conj pyflame.is_distributed pyflame.is_floating_point pyflame.is_inference pyflame.is_neg
    pyflame.is_same_size pyflame.is_signed pyflame.is_storage pyflame.is_tensor pyflame.isclose pyflame.isfinite pyflame.isin pyflame.isinf pyflame.isnan
    pyflame.isreal pyflame.kaiser_window pyflame.kind_of_file pyflame.kron pyflame.layer_norm pyflame.layout pyflame.ldexp pyflame.linear
    pyflame.llm.BeamSearchOutput pyflame.llm.BeamSearchSequence pyflame.llm.Beams pyflame.llm.CompletionOutput pyflame.llm.Conversion
    pyflame.llm.EmbeddingModel pyflame.llm.EmbeddingOutput pyflame.llm.EmbeddingRequestOutput pyflame.llm.LanguageModel pyflame.llm.LoRARequest
    pyflame.llm.Logprob pyflame.llm.Request pyflame.llm.RequestOutput pyflame.llm.Sampler pyflame.llm.TextStream pyflame.llm.Token pyflame.llm.Tokenizer
    pyflame.llm.serving.Limits pyflame.log pyflame.log10 pyflame.log1p pyflame.log2 pyflame.logaddexp pyflame.logcumsumexp pyflame.logdet
    pyflame.logical_not pyflame.logit pyflame.logspace pyflame.logsumexp pyflame.lstm_cell pyflame.lu_solve pyflame.lu_unpack pyflame.manual_seed
    pyflame.matrix_exp pyflame.max pyflame.max_pool2d_with_indices_backward pyflame.mean pyflame.median pyflame.memory.BatchSize
    pyflame.memory.CheckpointPolicy pyflame.memory.Estimate pyflame.memory.Fit pyflame.memory.Monitor pyflame.memory.Snapshot pyflame.memory.record
    pyflame.memory.report pyflame.memory.reset_peak pyflame.memory.snapshot pyflame.memory.trim pyflame.memory_format pyflame.memory_report
    pyflame.memory_stats pyflame.min pyflame.models.BasicBlock pyflame.models.BertModel pyflame.models.Bottleneck pyflame.models.ConvNeXt
    pyflame.models.EfficientNet pyflame.models.GPT2LMHeadModel pyflame.models.GPT2Model pyflame.models.MobileNetV2 pyflame.models.MobileNetV3
    pyflame.models.ResNet pyflame.models.UNet pyflame.models.convnext_base pyflame.models.convnext_large pyflame.models.convnext_small
    pyflame.models.convnext_tiny pyflame.models.efficientnet_b0 pyflame.models.efficientnet_b1 pyflame.models.efficientnet_b2
    pyflame.models.efficientnet_b3 pyflame.models.efficientnet_b4 pyflame.models.efficientnet_b5 pyflame.models.efficientnet_b6
    pyflame.models.efficientnet_b7 pyflame.models.mean_pooling pyflame.models.mobilenet_v2 pyflame.models.mobilenet_v3_large
    pyflame.models.mobilenet_v3_small pyflame.models.resnet101 pyflame.models.resnet152 pyflame.models.resnet18 pyflame.models.resnet34
    pyflame.models.resnet50 pyflame.models.vit_b_16 pyflame.models.vit_b_32 pyflame.models.vit_l_16 pyflame.models.vit_l_32
    pyflame.multiprocessing.set_sharing_strategy pyflame.nan_to_num pyflame.nanmean pyflame.nanmedian pyflame.nanquantile pyflame.nansum pyflame.narrow
    pyflame.native_batch_norm pyflame.native_dropout pyflame.native_dropout_backward pyflame.native_group_norm pyflame.native_layer_norm pyflame.nll_loss
    pyflame.nn.BCELoss pyflame.nn.Buffer pyflame.nn.Conv2d pyflame.nn.CrossMapLRN2d pyflame.nn.DataParallel pyflame.nn.Embedding pyflame.nn.EmbeddingBag
    pyflame.nn.GRU pyflame.nn.GRUCell pyflame.nn.Hardsigmoid pyflame.nn.Hardswish pyflame.nn.KLDivLoss pyflame.nn.LSTMCell pyflame.nn.LazyModuleMixin
    pyflame.nn.LinearCrossEntropyOptions pyflame.nn.Mish pyflame.nn.MultiheadAttention pyflame.nn.Parameter pyflame.nn.ParameterDict
    pyflame.nn.ParameterList pyflame.nn.RNN pyflame.nn.RNNBase pyflame.nn.RNNCell pyflame.nn.RNNCellBase pyflame.nn.Sequential
    pyflame.nn.TransformerDecoder pyflame.nn.TransformerEncoder pyflame.nn.TransformerEncoderLayer pyflame.nn.TripletMarginLoss
    pyflame.nn.UninitializedBuffer pyflame.nn.UninitializedParameter pyflame.nn.attention.SDPBackend pyflame.nn.attention.bias.causal_lower_right
    pyflame.nn.attention.bias.causal_upper_left pyflame.nn.attention.flex_attention.BlockMask pyflame.nn.attention.flex_attention.create_block_mask
    pyflame.nn.attention.flex_attention.create_mask pyflame.nn.attention.flex_attention.noop_mask pyflame.nn.functional.ScalingType
    pyflame.nn.functional.SwizzleType pyflame.nn.functional.adaptive_avg_pool3d pyflame.nn.functional.adaptive_max_pool2d
    pyflame.nn.functional.adaptive_max_pool3d pyflame.nn.functional.affine_grid pyflame.nn.functional.batch_norm
    pyflame.nn.functional.binary_cross_entropy_with_logits pyflame.nn.functional.celu_ pyflame.nn.functional.conv_tbc pyflame.nn.functional.ctc_loss
    pyflame.nn.functional.elu_ pyflame.nn.functional.embedding pyflame.nn.functional.fold pyflame.nn.functional.grid_sample
    pyflame.nn.functional.group_norm pyflame.nn.functional.hardsigmoid pyflame.nn.functional.hardswish pyflame.nn.functional.hardtanh_
    pyflame.nn.functional.instance_norm pyflame.nn.functional.leaky_relu_ pyflame.nn.functional.linear_cross_entropy pyflame.nn.functional.lp_pool1d
    pyflame.nn.functional.lp_pool2d pyflame.nn.functional.lp_pool3d pyflame.nn.functional.mish pyflame.nn.functional.pairwise_distance
    pyflame.nn.functional.pdist pyflame.nn.functional.rrelu_ pyflame.nn.functional.selu_ pyflame.nn.functional.tanhshrink pyflame.nn.functional.threshold_
    pyflame.nn.functional.unfold pyflame.nn.init.ones_ pyflame.nn.init.zeros_ pyflame.nn.parallel.data_parallel pyflame.nn.utils.clip_grad_value_
    pyflame.nn.utils.clip_grads_with_norm_ pyflame.nn.utils.convert_conv2d_weight_memory_format pyflame.nn.utils.fuse_conv_bn_eval
    pyflame.nn.utils.fuse_conv_bn_weights pyflame.nn.utils.fuse_linear_bn_eval pyflame.nn.utils.fuse_linear_bn_weights
    pyflame.nn.utils.parametrizations.weight_norm pyflame.nn.utils.parametrize.ParametrizationList pyflame.nn.utils.parametrize.register_parametrization
    pyflame.nn.utils.parametrize.remove_parametrizations pyflame.nn.utils.prune.LnStructured pyflame.nn.utils.prune.PruningContainer
    pyflame.nn.utils.prune.identity pyflame.nn.utils.prune.l1_unstructured pyflame.nn.utils.prune.ln_structured pyflame.nn.utils.prune.random_structured
    pyflame.nn.utils.prune.random_unstructured pyflame.nn.utils.prune.remove pyflame.nn.utils.remove_spectral_norm pyflame.nn.utils.remove_weight_norm
    pyflame.nn.utils.rnn.PackedSequence pyflame.nn.utils.rnn.invert_permutation pyflame.nn.utils.rnn.unpack_sequence pyflame.nn.utils.rnn.unpad_sequence
    pyflame.nn.utils.spectral_norm pyflame.nn.utils.weight_norm pyflame.nonzero pyflame.nonzero_static pyflame.norm pyflame.numel pyflame.one_hot
    pyflame.ones pyflame.ones_like pyflame.onnx.OnnxModule pyflame.onnx.export pyflame.optim.Adafactor pyflame.optim.LBFGS pyflame.optim.Optimizer
    pyflame.optim.lr_scheduler.CosineAnnealingWarmRestarts pyflame.optim.lr_scheduler.CyclicLR pyflame.optim.lr_scheduler.LRScheduler
    pyflame.optim.lr_scheduler.MultiStepLR pyflame.optim.lr_scheduler.OneCycleLR pyflame.optim.lr_scheduler.PolynomialLR
    pyflame.optim.lr_scheduler.ReduceLROnPlateau pyflame.optim.swa_utils.AveragedModel pyflame.optim.swa_utils.SWALR pyflame.orgqr pyflame.ormqr
    pyflame.overrides.has_torch_function pyflame.overrides.has_torch_function_unary pyflame.overrides.has_torch_function_variadic
    pyflame.overrides.is_tensor_like pyflame.pad pyflame.pdist pyflame.permute_copy pyflame.pinverse pyflame.prod pyflame.profiler.FunctionEvent
    pyflame.profiler.FunctionEventAvg pyflame.profiler.ProfilerAction pyflame.profiler.ProfilerActivity pyflame.profiler.StackSampler
    pyflame.profiler.profile pyflame.profiler.record_function pyflame.profiler.schedule pyflame.profiler.tensorboard_trace_handler pyflame.promote_types
    pyflame.rad2deg pyflame.rand pyflame.randn pyflame.random.manual_seed pyflame.randperm pyflame.ravel pyflame.real pyflame.reciprocal
    pyflame.reset_peak_memory pyflame.reshape pyflame.resolve_conj pyflame.resolve_neg pyflame.result_type pyflame.rewrites.Rewrite pyflame.rms_norm
    pyflame.rnn_relu pyflame.rnn_relu_cell pyflame.rnn_tanh pyflame.rnn_tanh_cell pyflame.rot90 pyflame.rsqrt pyflame.rsub pyflame.save_checkpoint
    pyflame.save_safetensors pyflame.scalar_tensor pyflame.scaled_dot_product_attention pyflame.scatter_add pyflame.select_copy pyflame.select_scatter
    pyflame.serialization.add_safe_globals pyflame.serialization.safe_globals pyflame.set_autocast_cache_enabled pyflame.set_autocast_cpu_enabled
    pyflame.set_default_dtype pyflame.set_default_tensor_type pyflame.set_float32_matmul_precision pyflame.set_grad_enabled pyflame.set_memory_fraction
    pyflame.set_memory_limit pyflame.sgd_step pyflame.sgn pyflame.sigmoid pyflame.signal.windows.bartlett pyflame.signal.windows.blackman
    pyflame.signal.windows.cosine pyflame.signal.windows.exponential pyflame.signal.windows.gaussian pyflame.signal.windows.general_cosine
    pyflame.signal.windows.general_hamming pyflame.signal.windows.hamming pyflame.signal.windows.hann pyflame.signal.windows.kaiser
    pyflame.signal.windows.nuttall pyflame.signbit pyflame.silu pyflame.sin pyflame.sinc pyflame.sinh pyflame.slice_copy pyflame.slice_scatter
    pyflame.softplus pyflame.sort pyflame.special.chebyshev_polynomial_u pyflame.special.chebyshev_polynomial_v pyflame.special.chebyshev_polynomial_w
    pyflame.special.hermite_polynomial_he pyflame.special.laguerre_polynomial_l pyflame.special.legendre_polynomial_p pyflame.special.spherical_bessel_j0
    pyflame.special_zeta pyflame.split pyflame.split_copy pyflame.sqrt pyflame.square pyflame.squeeze pyflame.squeeze_copy pyflame.std pyflame.std_mean
    pyflame.storage.Storage pyflame.sum pyflame.svd pyflame.svd_lowrank pyflame.t_copy pyflame.tan pyflame.tanh pyflame.tensor_split pyflame.to_dlpack
    pyflame.transpose_copy pyflame.triangular_solve pyflame.tril pyflame.triu pyflame.tuning.problems pyflame.tuning.rows pyflame.tuning.table
    pyflame.typename pyflame.unbind_copy pyflame.unfold_copy pyflame.unique pyflame.unique_consecutive pyflame.unsqueeze_copy
    pyflame.use_deterministic_algorithms pyflame.utils.checkpoint.CheckpointPolicy pyflame.utils.checkpoint.detach_variable
    pyflame.utils.checkpoint.set_checkpoint_debug_enabled pyflame.utils.checkpoint.set_checkpoint_early_stop pyflame.utils.cpp_extension.Extension
    pyflame.utils.cpp_extension.load_inline pyflame.var_mean pyflame.varlen_attn pyflame.vdot pyflame.view_as_complex_copy pyflame.view_as_real_copy
    pyflame.view_copy pyflame.wait pyflame.where pyflame.xlogy pyflame.zeros pyflame.zeros_like
    """.split()
)


def takes_arguments(value):
    """Whether a function has a parameter, or a class of the package a constructor of its own with one."""
    if inspect.isclass(value):
        makers = [f for f in (vars(value).get("__init__"), vars(value).get("__new__")) if f is not None]
        return any(takes_arguments(getattr(f, "__func__", f)) for f in makers)
    compiled = getattr(value, "__nb_signature__", None)
    if compiled:
        inside = [re.match(r"def \w+\((.*)\)", s[0], re.DOTALL)[1] for s in compiled]
        return any(word.strip() not in ("", "self", "self, /") for word in inside)
    if not hasattr(value, "__code__") and not hasattr(value, "__wrapped__"):
        return False  # a method of C that Python gives to every class, such as object.__init__
    return any(name not in ("self", "cls") for name in inspect.signature(value).parameters)


def silent_on_errors(entries):
    """Each public function with a parameter, and each class whose constructor has one of its own, with no word on errors in its docstring."""
    for path, entry in entries.items():
        if entry.kind != "data" and takes_arguments(entry.value) and not ERRORS.search(names.doc_of(entry.value)):
            yield path


def test_docstrings_say_what_raises():
    silent = set(silent_on_errors(INVENTORY))
    assert not silent - SILENT, f"say which argument raises which error, or that nothing is raised: {', '.join(sorted(silent - SILENT))}"
    assert not SILENT - silent, f"no longer silent on errors; take out of SILENT: {', '.join(sorted(SILENT - silent))}"


def test_a_docstring_without_a_word_on_errors_is_found():
    def of_one(x):
        """The argument, as it is."""

    def told(x):
        """The argument, as it is. Raises ValueError for 0."""

    def of_none():
        """The number 1, whatever else happens."""

    class Made:
        """What is made of a number."""

        def __init__(self, number):
            self.number = number

    class Empty:
        """What is made of nothing."""

        def __init__(self):
            self.number = 0

    class Inherits(Made):
        """What has the constructor of another class."""

    entries = {v.__name__: names.Entry(v.__name__, v) for v in (of_one, told, of_none, Made, Empty, Inherits, pyflame.neg)}
    assert list(silent_on_errors(entries)) == ["of_one", "Made"]
    assert takes_arguments(pyflame.neg) and takes_arguments(pyflame.linalg.qr) and not takes_arguments(pyflame.cuda_device_count)


def test_what_has_none_is_found():
    class Without:
        def method(self):
            pass

        @property
        def value(self):
            """A value."""

    entries = {"pyflame.Without": names.Entry("pyflame.Without", Without), "pyflame.f": names.Entry("pyflame.f", types.FunctionType((lambda: None).__code__, {}))}
    assert list(names.without_docstring(entries)) == ["pyflame.Without", "pyflame.Without.method", "pyflame.f"]


def test_a_method_has_the_docstring_of_the_base_class():
    assert names.member_doc(pyflame.nn.Linear, "forward") == names.member_doc(pyflame.nn.Module, "forward") != ""


def test_every_public_name_has_an_example():
    missing = sorted(uses.without(INVENTORY))
    assert not missing, f"a public name needs an example in a page of docs that runs (docs/examples), or in examples: {', '.join(missing)}"


def test_a_name_without_an_example_is_found():
    entries = {path: names.Entry(path, types.FunctionType((lambda: None).__code__, {})) for path in ("pyflame.no_such_name", "pyflame.add")}
    assert uses.without(entries) == {"pyflame.no_such_name"}


def test_where_an_example_is_found():
    found = uses.paths_in("import pyflame as pf\nfrom pyflame import nn\npf.randn(3)\nnn.functional.relu(x)\nother.randn(3)\npf.randn(4)\n")
    assert found["pyflame.randn"] == 3 and found["pyflame.nn.functional.relu"] == 4 and "other.randn" not in found


def test_an_example_is_linked_by_its_section():
    text = "# Page\n\n## One `x`, two\n\n```python\n# no heading\n```\n\n## Same\n\n### Same\n"
    assert uses.headings_of(text) == [(3, "One `x`, two", "#one-x-two"), (9, "Same", "#same"), (11, "Same", "#same-1")]
    title, link = uses.uses(INVENTORY)["pyflame.heaviside"][0]
    assert (title, link) == ("Arithmetic, element by element: Signs", "../../docs/examples/arithmetic.md#signs")


def test_modules_that_are_imported_with_the_package_are_public():
    listed = names.module_names(pyflame)
    assert {"pyflame.linalg", "pyflame.fft", "pyflame.nn.functional"} <= set(listed) and len(listed) == len(set(listed))
    assert "pyflame.linalg.svd" in INVENTORY and "pyflame._functions" not in listed
