"""The public functions without a case in the tables of pyflame.testing.cases: {module: {why: names}}. tests/ops/test_cases.py reads this."""

# Below pyflame; "" is pyflame itself. A function that several of them have belongs to the last of these.
MODULES = ("", "nn.functional", "linalg", "fft", "special", "signal.windows")

NOT_IN_THE_CASES = {
    "": {
        "it says something of a tensor, a dtype, a device or a setting, and returns no tensor": """
            allclose are_deterministic_algorithms_enabled broadcast_shapes can_cast cuda_device_count cuda_is_available device_info equal fallbacks
            get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype get_default_device get_default_dtype get_device get_float32_conv_precision
            get_float32_matmul_precision get_num_threads gpu_graph_stats initial_seed is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_cache_enabled
            is_autocast_cpu_enabled is_autocast_enabled is_complex is_conj is_distributed is_floating_point is_grad_enabled is_inference
            is_inference_mode_enabled is_neg is_nonzero is_same_size is_signed is_storage is_tensor kind_of_file memory_report memory_stats numel op_names
            program_cache_stats promote_types result_type rocm_device_count rocm_get_device rocm_get_device_info rocm_is_available rocm_unavailable_reason
            typename""",
        "it changes a setting or the engine's state": """
            autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache clear_program_cache cut empty_cache reset_peak_memory rocm_set_device
            rocm_synchronize seed set_anomaly_enabled set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype
            set_autocast_enabled set_autocast_gpu_dtype set_default_device set_default_dtype set_default_tensor_type set_device set_float32_conv_precision
            set_float32_matmul_precision set_memory_fraction set_memory_limit set_num_threads set_printoptions synchronize use_deterministic_algorithms""",
        "it runs, measures or explains other functions": "bench checkpoint checkpoint_policy compile elementwise explain find_batch_size fork fork_rng kernel no_fuse vmap wait",
        "it reads or writes files": """
            load load_checkpoint load_gguf load_safetensors load_settings read_torch_file save save_checkpoint save_safetensors
            write_file_atomically""",
        "it draws random numbers (tests/python/test_random_numbers.py)": """
            binomial multinomial native_dropout native_dropout_backward normal pca_lowrank poisson rand_like randint_like randn_like svd_lowrank""",
        "it takes over the memory or the values of something that is no tensor, or does not set the values": """
            as_tensor asarray empty_permuted empty_strided from_dlpack from_numpy frombuffer tensor to_dlpack""",
    },
    "nn.functional": {
        "it draws random numbers (tests/python/test_nn_more_layers.py, tests/ops/test_every_layer.py)": """
            alpha_dropout dropout1d dropout2d dropout3d feature_alpha_dropout gumbel_softmax""",
    },
    "linalg": {},
    "fft": {},
    "special": {},
    "signal.windows": {},
}
