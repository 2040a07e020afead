"""Seeds for the fuzzer: python seeds.py FOLDER writes FOLDER/<target>/*, from the data and the builders that the tests have.

Standard library only. Everything is made the same way each time.
"""
import bz2
import gzip
import json
import pathlib
import re
import sqlite3
import struct
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
for folder in ("doctor", "profile"):
    sys.path.insert(0, str(TESTS / folder))
import machines  # noqa: E402
import amd_formats  # noqa: E402
import traces  # noqa: E402
import xplane_format  # noqa: E402

DATA = TESTS / "inspect" / "data"

TUNED = {
    "tunableop": [
        "Validator,PT_VERSION,2.6.0\nValidator,ROCM_VERSION,6.3.0.0-39-7f1c2dd\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
        "GemmTunableOp_float_NT,nt_25088_4096_64,Gemm_Hipblaslt_1219,1.262\n"
        "GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_1024_1024_4096,Gemm_Rocblas_-1234,0.0431,blas\n"
        "GemmStridedBatchedTunableOp_Half_NN,nn_64_32_16_B_8_ld_64_16_64,Default\n"
        "ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e5m2fnuz_BFloat16_TN,tn_16_32_64_ld_64_64_16_rw_1_bias_None,Default,0.5\n"],
    "bench_lines": [
        "hipblaslt-bench --api_method c -m 4096 -n 512 -k 1024 --lda 1024 --ldb 1024 --ldc 4096 --ldd 4096 --stride_a 0 --alpha 1 --beta 0 "
        "--transA T --transB N --batch_count 1 --scaleA 0 --a_type bf16_r --b_type bf16_r --c_type bf16_r --d_type bf16_r --compute_type f32_r\n",
        "rocblas-bench -f gemm_ex --transposeA N --transposeB N -m 1024 -n 512 -k 64 --alpha 1 --a_type f16_r --lda 1024 --b_type f16_r "
        "--ldb 64 --beta 0 --c_type f16_r --ldc 1024 --d_type f16_r --ldd 1024 --compute_type f32_r --algo 0 --solution_index -1\n",
        "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convbfp16 -n 1 -c 1024 -H 14 -W 14 -k 256 -y 1 -x 1 -p 0 -q 0 -u 1 "
        "-v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1\n",
        "[0]:transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,us,hipblaslt-Gflops\n"
        "    T,N,0,1,4096,512,1024,1,1024,0,0,1024,12.5,343597\n"],
    "aiter_csv": [
        "M,N,K,kernelId,splitK,us,kernelName\n16,1280,8192,24,3,9.1,a8w8_kernel<256,16>\n",
        "cu_num,M,N,K,bias,dtype,outdtype,scaleAB,libtype,solidx,splitK,soltimes,kernelName,tflops,bw\n"
        "80,1,128,2048,False,torch.bfloat16,torch.bfloat16,False,hipblaslt,38541,0,3.2,Cijk,0.1,9.9\n"],
    "miopen_db": [
        "1-14-14-1x1-256-14-14-1-0x0-1x1-1x1-0-NCHW-BF16-F=miopenConvolutionFwdAlgoGEMM:ConvHipImplicitGemm,0.0214,0,"
        "miopenConvolutionFwdAlgoImplicitGEMM,x;ConvAsm1x1U:0.03,65536,miopenConvolutionFwdAlgoDirect,x\n",
        "3-224-224-7x7-64-112-112-32-3x3-2x2-1x1-0-NCHW-FP32-W=ConvAsmBwdWrW3x3:1,2,3,4;ConvBinWinogradRxSf2x3g1:16\n"],
}
LISTINGS = [
    "1a00: s_load_dwordx4 s[0:3], s[4:5], 0x0\n1a08: global_load_dwordx4 v[0:3], v4, s[0:1]\n1a10: s_waitcnt vmcnt(0) lgkmcnt(0)\n"
    "1a14: v_mfma_f32_16x16x16_bf16 v[8:11], v[0:1], v[2:3], v[8:11]\n1a1c: ds_write_b128 v5, v[0:3]\n1a24: s_barrier\n"
    "1a28: ds_read_b64 v[6:7], v5 offset:1024\n1a30: s_cmp_lt_u32 s6, s7\n1a34: s_cbranch_scc1 65525\n1a38: s_endpgm\n",
    "\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]  // 000000001A00: CC400000 1C021108\n"
    "\ts_waitcnt vmcnt(3)  // 000000001A08: BF890C07\n\tscratch_store_b32 off, v1, s32 offset:4  // 000000001A0C: DC690004 00200100\n"
    "\tv_dual_fmac_f32 v1, v2, v3 :: v_dual_mul_f32 v4, v5, v6  // 000000001A14: C8060702 01040D05\n",
]


def msgpack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"\xda" + struct.pack(">H", len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return b"\xc4" + bytes([len(value)]) + value
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(msgpack, value))
    return b"\xde" + struct.pack(">H", len(value)) + b"".join(msgpack(k) + msgpack(v) for k, v in value.items())


def section(elf, name):
    """The contents of a section of an ELF64 file; empty if the file has no such section."""
    offset, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + i * size) for i in range(count)]
    for head in heads:
        at = heads[names][4] + head[0]
        if elf[at:elf.index(b"\0", at)].decode() == name:
            return elf[head[4]:head[4] + head[5]]
    return b""


def database(statements, rows):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "x.db")
        with sqlite3.connect(path) as db:
            db.executescript("PRAGMA page_size = 512;" + statements)
            for sql, values in rows:
                db.execute(sql, values)
        db.close()
        return path.read_bytes()


def all_seeds():
    """Pairs of target and bytes."""
    objects = [p.read_bytes() for p in sorted((DATA / "co").iterdir())] + [p.read_bytes() for p in sorted((DATA / "isa").glob("*.co"))[-2:]]
    for data in objects:
        for target in ("container", "inspect") + (("elf", "code_object") if data.startswith(b"\x7fELF") else ()):
            yield target, data
        for magic in (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"):
            if magic in data:
                yield "bundle", data[data.index(magic):]
        if data.startswith(b"!<"):
            yield "archive", data
        if data.startswith(b"\x7fELF"):
            lines, strings, more = (section(data, name) for name in (".debug_line", ".debug_line_str", ".debug_str"))
            if lines:
                yield "dwarf", bytes([min(255, len(strings)), 0]) + strings[:255] + lines
                yield "dwarf", data
    yield "archive", b"!<thin>\n//                                              10        `\nmember.o/\n/0              0           0     0     644     4         `\n"
    yield "bundle", b"# __CLANG_OFFLOAD_BUNDLE____START__ hip-amdgcn-amd-amdhsa--gfx942\n\n# __CLANG_OFFLOAD_BUNDLE____END__ hip-amdgcn-amd-amdhsa--gfx942\n"
    yield "msgpack", msgpack({"amdhsa.version": [1, 2], "amdhsa.kernels": [{".name": "k", ".sgpr_count": 300, ".x": [None, True, 1.5, b"ab", -1]}]})
    kernels = "CREATE TABLE kern_db (id INTEGER PRIMARY KEY, kernel_name TEXT, kernel_args TEXT, kernel_blob BLOB, kernel_hash TEXT, uncompressed_size INT);"
    small = next(p for p in objects if p.startswith(b"\x7fELF"))
    blob = bz2.compress(small)
    yield "kernel_db", database(kernels, [("INSERT INTO kern_db VALUES (1, 'conv.cl.o', '-DX=1', ?, 'abc', ?)", (blob, len(small)))])

    for i, listing in enumerate(LISTINGS):
        for arch in (10, 11, 16, 23, 32):
            yield "instructions", bytes([arch]) + listing.encode()
    for name in ("_ZN2ck11kernel_gemmINS_4TypeIfEELi16EEEvPKfS4_Pf", "_Z4testIDF16_EvPT_", "_ZZ4mainENKUlT_E_clIiEEDaS_", "triton_poi_fused_0"):
        yield "symbol", name.encode()

    run = traces.training(steps=2)
    # What gaps and steps are explained by: ranges of a serving engine, Python functions, a captured graph.
    run.cpu += [traces.Cpu("step[DECODE bs=8]", 0, 900, "annotation"), traces.Cpu("app.py(3): load", 0, 1990, "python"),
                traces.Cpu("hipStreamBeginCapture", 1000, 2, "call"), traces.Cpu("hipStreamEndCapture", 1400, 2, "call"),
                traces.Cpu("hipModuleLoadData", 1500, 300, "call")]
    text = json.dumps(traces.kineto(run)).encode()
    yield "kineto", text[:60000]
    yield "kineto", gzip.compress(text, mtime=0)
    yield "kineto", b'{"pyflame":{"version":"0.1.0","device_times":false,"dropped":0},"schemaVersion":1,"deviceProperties":[{"id":0,"name":"cpu"}],' \
                    b'"traceEvents":[{"ph":"X","cat":"kernel","name":"onednn.sgemm matmul+add","pid":1,"tid":0,"ts":1,"dur":2,"args":{"work":"GEMM",' \
                    b'"bytes":4096,"flops":65536,"device":0,"stream":0}},{"ph":"X","cat":"plan","name":"plan program","pid":1,"tid":0,"ts":4,"dur":2,' \
                    b'"args":{}},{"ph":"X","cat":"launch","name":"gpu.loop add","pid":1,"tid":0,"ts":7,"dur":2,"args":{"work":"elementwise","device":10300}}]}'
    yield "kineto", b'{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"AMD Instinct MI300X","numSms":304}],"traceEvents":[{"ph":"X","cat":"kernel",' \
        b'"name":"Cijk_Ailk","pid":0,"tid":7,"ts":1.5,"dur":2.25,"args":{"stream":7,"device":0,"correlation":5,"grid":[4,1,1],"block":[256,1,1]}},' \
        b'{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":0,"dur":1,"args":{"External id":3,"Input Dims":[[8,16],[16,4]],' \
        b'"Input type":["float","float"]}},{"ph":"X","cat":"cuda_runtime","name":"hipLaunchKernel","pid":1,"tid":1,"ts":0.2,"dur":0.1,"args":{"correlation":5}}]}'
    yield "kineto", json.dumps(amd_formats.rocprofv3_json(run, counters=True)).encode()
    yield "kineto", amd_formats.rocprof_v1_json(run).encode()
    yield "kineto", xplane_format.xplane(run)
    with tempfile.TemporaryDirectory() as folder:
        traces.write_csv(run, pathlib.Path(folder))
        for path in sorted(pathlib.Path(folder).rglob("*.csv")):
            yield "rocprof_csv", path.read_bytes()[:8000]
        path = pathlib.Path(folder, "x.db")
        traces.write_rocpd(run, path)
        yield "rocpd", path.read_bytes()
    for target, texts in TUNED.items():
        for t in texts:
            yield target, t.encode()
            yield "profile", t.encode()
    yield "miopen_sqlite", database(
        "CREATE TABLE config (id INTEGER PRIMARY KEY, layout TEXT, data_type TEXT, direction TEXT, spatial_dim INT, in_channels INT, in_h INT, in_w INT, "
        "in_d INT, fil_h INT, fil_w INT, fil_d INT, out_channels INT, batchsize INT, pad_h INT, pad_w INT, pad_d INT, conv_stride_h INT, conv_stride_w INT, "
        "conv_stride_d INT, dilation_h INT, dilation_w INT, dilation_d INT, bias INT, group_count INT);"
        "CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver TEXT, config INT, params TEXT);",
        [("INSERT INTO config VALUES (1,'NCHW','FP16','F',2,64,56,56,1,3,3,1,64,32,1,1,0,1,1,1,1,1,1,0,1)", ()),
         ("INSERT INTO perf_db VALUES (1,'ConvHipImplicitGemm',1,'1,2,3')", ())])

    for name in sorted(machines.MACHINES):
        machine = machines.MACHINES[name]()
        parts = [f"=== {path}\n{text if text.endswith(chr(10)) else text + chr(10)}" for path, text in sorted(machine.files.items())]
        parts.append("=== env\n" + "".join(f"{k}={v}\n" for k, v in sorted(machine.env.items())))
        yield "machine", "".join(parts).encode()
        with tempfile.TemporaryDirectory() as folder:
            machine.write(pathlib.Path(folder, "tree"))
            yield "record", pathlib.Path(folder, "tree", "pyflame-record.json").read_bytes()
    for path in sorted((TESTS / "doctor" / "guides").iterdir()):
        yield "settings", path.read_bytes()
    yield "settings", b"A=1 B=$A export C=${B:-x}\nexport D=\"$(nproc)\"\n.. code-block:: shell\n\n   export E=1\n\n```bash\nexport F='2'\n```\nENV G=3\nEnvironment=H=4\n"


    yield from training_seeds()
    for target, names in (("torch_file", ["torch.pt", "torch_legacy.pt", "torch_module.pt", "torchscript.pt"]), ("gguf_file", ["blocks.gguf"])):
        for name in names:
            yield target, (TESTS / "python" / "data" / name).read_bytes()
            yield "model_file", (TESTS / "python" / "data" / name).read_bytes()
    yield "model_file", (TESTS / "python" / "data" / "blocks_decoded.npz").read_bytes()


def training_seeds():
    def safetensors(header, data):
        header = header.encode()
        return struct.pack("<Q", len(header)) + header + data

    yield "safetensors", safetensors('{"__metadata__":{"format":"pyflame.checkpoint.1","step":"3"},"model.w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'
                                     '"optimizer.b":{"dtype":"BOOL","shape":[3],"data_offsets":[26,29]},"h":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}}', bytes(29))
    yield "safetensors", safetensors('{"empty":{"dtype":"I64","shape":[0,9223372036854775807],"data_offsets":[0,0]}}', b"")
    yield "safetensors", safetensors('{"large":{"dtype":"F64","shape":[1099511627776],"data_offsets":[0,8796093022208]}}', bytes(8))
    yield "metrics", b'{"step":1,"loss":4.17,"lr":0.001,"tokens_per_s":51234.5}\n{"step":2,"loss":3.9,"val_loss":4.0,"lr":0.001,"tokens_per_s":1e300}\n{"step":3,"lo'
    yield "metrics", b'{"step":-9223372036854775808,"loss":null}\n[]\n{"step":18446744073709551615,"loss":1e999}\n'
    yield "training_text", "plain, \u00e9\u20ac\U0001f600 and\nlines".encode()
    yield "training_text", b"\xf0\x9f\x98 torn \xed\xa0\x80 surrogate \xc0\xaf overlong \xf4\x90\x80\x80 beyond \xff"
    yield "tokenizer", b'{"kind":"chars","alphabet":"\\n !,ab\\u00e9\\ud83d\\ude00"}'
    yield "tokenizer", b'{"kind":"bytes"}'


def write(folder):
    counts = {}
    for target, data in all_seeds():
        where = pathlib.Path(folder, target)
        where.mkdir(parents=True, exist_ok=True)
        counts[target] = counts.get(target, 0) + 1
        (where / f"seed_{counts[target]:03}").write_bytes(data)


if __name__ == "__main__":
    write(re.sub(r"/$", "", sys.argv[1]))
