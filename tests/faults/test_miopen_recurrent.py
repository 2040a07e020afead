"""A library in the place of MIOpen that computes recurrent layers in MIOpen's order of gates: PyFlame's results with it are those of the CPU's steps."""
import pathlib
import shutil
import subprocess

# One layer in one direction, float32; it refuses others. The numbers and the order of the gates are those of miopen.h. It computes on the host, as soon as the
# stream is done: the emulated device's memory is the host's. As the real one it adds to the gradients of the weights, and writes to what was kept. FAILS: the
# forward pass returns an error. As the real one it wants its reserve in inference too, although it tells the size only in training.
MIOPEN = """
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int hipStreamSynchronize(void*);
typedef struct { int hidden, mode, biases; } Layers;
typedef struct { int steps, batch, width; } Data;
typedef struct { int shape[4]; } Tensor;
static int anything;
static void* stream;
int miopenCreateWithStream(void** handle, void* s) { *handle = &anything; return 0; }
int miopenSetStream(void* handle, void* s) { stream = s; return 0; }
#define MADE(Name, Type) int miopenCreate##Name(void** d) { *d = calloc(1, sizeof(Type)); return 0; } int miopenDestroy##Name(void* d) { free(d); return 0; }
MADE(TensorDescriptor, Tensor) MADE(RNNDescriptor, Layers) MADE(SeqTensorDescriptor, Data)
int miopenSetTensorDescriptor(void* d, int type, int dims, const int* shape, const int* strides) {
  if (type != 1) return 3;
  memcpy(d, shape, sizeof(int) * dims);
  return 0;
}
int miopenSetRNNDescriptor(Layers* d, int hidden, int layers, int input, int direction, int mode, int biases, int algorithm, int type) {
  if (layers != 1 || direction != 0 || input != 0 || algorithm != 0 || type != 1 || mode < 2) return 3;
  *d = (Layers){hidden, mode, biases};
  return 0;
}
int miopenSetRNNDataSeqTensorDescriptor(Data* d, int type, int layout, int steps, int batch, int width, const int* lengths, void* padding) {
  if (layout != 1 || padding) return 3;
  for (int i = 0; i < batch; ++i) if (lengths[i] != steps) return 3;
  *d = (Data){steps, batch, width};
  return 0;
}
static int gates(const Layers* d) { return d->mode == 2 ? 4 : 3; }
int miopenGetRNNTempSpaceSizes(void* h, Layers* d, Data* x, int forward, size_t* workspace, size_t* reserve) {
  const size_t rows = (size_t)x->steps * x->batch;
  *workspace = rows * 2 * gates(d) * d->hidden * sizeof(float);
  if (forward == 0 && reserve) *reserve = rows * (gates(d) + 2) * d->hidden * sizeof(float);
  return 0;
}
int miopenGetRNNParamsSize(void* h, Layers* d, Tensor* x, size_t* bytes, int type) {
  *bytes = sizeof(float) * gates(d) * d->hidden * (x->shape[1] + d->hidden + 2 * d->biases);
  return 0;
}
static size_t matrix(const Layers* d, int width, int gate) {
  const int g = gates(d), h = d->hidden;
  return gate < g ? (size_t)gate * h * width : (size_t)g * h * width + (size_t)(gate - g) * h * h;
}
static size_t bias(const Layers* d, int width, int gate) { return (size_t)gates(d) * d->hidden * (width + d->hidden) + (size_t)gate * d->hidden; }
int miopenGetRNNLayerParamOffset(Layers* d, int layer, Tensor* x, int gate, void* to, size_t* at) { *at = matrix(d, x->shape[1], gate); return layer; }
int miopenGetRNNLayerBiasOffset(Layers* d, int layer, Tensor* x, int gate, void* to, size_t* at) { *at = bias(d, x->shape[1], gate); return layer; }

static float sigmoid(float v) { return 1 / (1 + expf(-v)); }
static double dot(const float* a, const float* b, int n) { double s = 0; for (int i = 0; i < n; ++i) s += (double)a[i] * b[i]; return s; }
// An LSTM has the gates i, f, o, g; a GRU z, r, n. Kept of each row: gates, a GRU's product of n with the state, an LSTM's cell.
int miopenRNNForward(void* handle, Layers* d, int mode, Data* xd, const float* x, void* hd, const float* hx, float* hy, void* cd, const float* cx, float* cy,
                     Data* yd, float* y, const float* w, size_t bytes, void* workspace, size_t workspace_bytes, float* kept, size_t kept_bytes) {
  printf("ran forward %d\\n", mode); fflush(stdout);
  size_t needed = 0, reserve = 0;
  miopenGetRNNTempSpaceSizes(handle, d, xd, mode, &needed, 0);
  miopenGetRNNTempSpaceSizes(handle, d, xd, 0, &needed, &reserve);
  if (!kept || kept_bytes < reserve || !workspace || workspace_bytes < needed) return 7;
  if (mode == 1) memset(kept, 0xff, kept_bytes);
#ifdef FAILS
  return 7;
#endif
  hipStreamSynchronize(stream);
  const int H = d->hidden, G = gates(d), I = xd->width, N = xd->batch, each = (G + 2) * H;
  float* own = malloc(sizeof(float) * each);
  float* cell = calloc((size_t)N * H, sizeof(float));
  if (cx) memcpy(cell, cx, sizeof(float) * N * H);
  for (int row = 0; row < xd->steps * N; ++row) {
    const float* before = row < N ? hx + (size_t)row * H : y + (size_t)(row - N) * H;
    float* to = mode == 0 ? kept + (size_t)row * each : own;
    for (int j = 0; j < H; ++j) {
      float z[4], s[4];
      for (int g = 0; g < G; ++g) {
        z[g] = dot(w + matrix(d, I, g) + (size_t)j * I, x + (size_t)row * I, I) + (d->biases ? w[bias(d, I, g) + j] : 0);
        s[g] = dot(w + matrix(d, I, G + g) + (size_t)j * H, before, H) + (d->biases ? w[bias(d, I, G + g) + j] : 0);
      }
      float* c = cell + (size_t)(row % N) * H + j;
      if (d->mode == 2) {
        for (int g = 0; g < 4; ++g) to[g * H + j] = g == 3 ? tanhf(z[g] + s[g]) : sigmoid(z[g] + s[g]);
        *c = to[H + j] * *c + to[j] * to[3 * H + j];
        y[(size_t)row * H + j] = to[2 * H + j] * tanhf(*c);
      } else {
        to[j] = sigmoid(z[0] + s[0]), to[H + j] = sigmoid(z[1] + s[1]), to[2 * H + j] = tanhf(z[2] + to[H + j] * s[2]);
        y[(size_t)row * H + j] = to[2 * H + j] + to[j] * (before[j] - to[2 * H + j]);
      }
      to[G * H + j] = s[2], to[(G + 1) * H + j] = *c;
    }
  }
  memcpy(hy, y + (size_t)(xd->steps - 1) * N * H, sizeof(float) * N * H);
  if (cy) memcpy(cy, cell, sizeof(float) * N * H);
  free(own), free(cell);
  return 0;
}
// The workspace gets the gradients of both products, for the gradients of the weights.
int miopenRNNBackwardSeqData(void* handle, Layers* d, Data* yd, const float* y, const float* dy, void* hd, const float* hx, const float* dhy, float* dhx, void* cd,
                             const float* cx, const float* dcy, float* dcx, Data* xd, float* dx, const float* w, size_t bytes, float* workspace, size_t workspace_bytes,
                             float* kept, size_t kept_bytes) {
  printf("ran backward\\n"); fflush(stdout);
  hipStreamSynchronize(stream);
  const int H = d->hidden, G = gates(d), I = xd->width, N = xd->batch, each = (G + 2) * H;
  memcpy(dhx, dhy, sizeof(float) * N * H);
  if (dcx) memcpy(dcx, dcy, sizeof(float) * N * H);
  for (int row = xd->steps * N - 1; row >= 0; --row) {
    const float *before = row < N ? hx + (size_t)row * H : y + (size_t)(row - N) * H, *k = kept + (size_t)row * each;
    float *z = workspace + (size_t)row * 2 * G * H, *s = z + G * H, *dh = dhx + (size_t)(row % N) * H;
    float* next = calloc(H, sizeof(float));
    for (int j = 0; j < H; ++j) {
      const float g = dh[j] + dy[(size_t)row * H + j];
      if (d->mode == 2) {
        const float c = tanhf(k[(G + 1) * H + j]), previous = row < N ? cx[(size_t)row * H + j] : (k - (size_t)N * each)[(G + 1) * H + j];
        float* dc = dcx + (size_t)(row % N) * H + j;
        const float i = k[j], f = k[H + j], o = k[2 * H + j], n = k[3 * H + j], all = *dc + g * o * (1 - c * c);
        z[j] = all * n * i * (1 - i), z[H + j] = all * previous * f * (1 - f), z[2 * H + j] = g * c * o * (1 - o), z[3 * H + j] = all * i * (1 - n * n);
        for (int gate = 0; gate < G; ++gate) s[gate * H + j] = z[gate * H + j];
        *dc = all * f;
      } else {
        const float u = k[j], r = k[H + j], n = k[2 * H + j], dn = g * (1 - u) * (1 - n * n);
        z[j] = s[j] = g * (before[j] - n) * u * (1 - u);
        z[H + j] = s[H + j] = dn * k[G * H + j] * r * (1 - r);
        z[2 * H + j] = dn, s[2 * H + j] = dn * r;
        next[j] = g * u;
      }
    }
    for (int i = 0; i < I; ++i) dx[(size_t)row * I + i] = 0;
    for (int gate = 0; gate < G; ++gate)
      for (int j = 0; j < H; ++j) {
        for (int i = 0; i < I; ++i) dx[(size_t)row * I + i] += z[gate * H + j] * w[matrix(d, I, gate) + (size_t)j * I + i];
        for (int i = 0; i < H; ++i) next[i] += s[gate * H + j] * w[matrix(d, I, G + gate) + (size_t)j * H + i];
      }
    memcpy(dh, next, sizeof(float) * H);
    free(next);
  }
  memset(kept, 0xff, kept_bytes);
  return 0;
}
int miopenRNNBackwardWeightsSeqTensor(void* handle, Layers* d, Data* xd, const float* x, void* hd, const float* hx, Data* yd, const float* y, float* dw, size_t bytes,
                                      const float* workspace, size_t workspace_bytes, const void* kept, size_t kept_bytes) {
  hipStreamSynchronize(stream);
  const int H = d->hidden, G = gates(d), I = xd->width, N = xd->batch;
  for (int row = 0; row < xd->steps * N; ++row) {
    const float *before = row < N ? hx + (size_t)row * H : y + (size_t)(row - N) * H, *z = workspace + (size_t)row * 2 * G * H, *s = z + G * H;
    for (int gate = 0; gate < G; ++gate)
      for (int j = 0; j < H; ++j) {
        for (int i = 0; i < I; ++i) dw[matrix(d, I, gate) + (size_t)j * I + i] += z[gate * H + j] * x[(size_t)row * I + i];
        for (int i = 0; i < H; ++i) dw[matrix(d, I, G + gate) + (size_t)j * H + i] += s[gate * H + j] * before[i];
        if (d->biases) dw[bias(d, I, gate) + j] += z[gate * H + j], dw[bias(d, I, G + gate) + j] += s[gate * H + j];
      }
  }
  return 0;
}
"""
ROCBLAS = """
#include <string.h>
static int anything;
int rocblas_get_version_string(char* text, unsigned long bytes) { strncpy(text, "5.2.0", bytes); return 0; }
int rocblas_create_handle(void** handle) { *handle = &anything; return 0; }
int rocblas_set_stream(void* handle, void* s) { return 0; }
int rocblas_set_workspace(void* handle, void* memory, unsigned long bytes) { return 0; }
int rocblas_gemm_strided_batched_ex() { return 3; }
int rocblas_gemm_strided_batched_ex_get_solutions() { return 3; }
"""

PROGRAM = """
pf.use_deterministic_algorithms(False)

def results(device, Kind, **how):
    pf.manual_seed(0)
    layer = Kind(4, 6, **how)
    x, h = (pf.arange(0, n, dtype='float32').reshape(s).sin() for n, s in ((60, (5, 3, 4)), (18, (1, 3, 6))))
    layer = layer.to(device)
    x, h = (t.to(device).requires_grad_() for t in (x, h))
    y, last = layer(x, (h, h * 0.5) if Kind is pf.nn.LSTM else h)
    last = last if Kind is pf.nn.LSTM else (last,)
    loss = sum((t * t * (i + 1)).sum() for i, t in enumerate((y, *last)))
    first = pf.autograd.grad(loss, [x, h], retain_graph=True)
    loss.backward()
    assert all((a - b).abs().max().item() < 1e-6 for a, b in zip(first, (x.grad, h.grad)))  # what is kept outlives a gradient
    return [t.detach().to('cpu') for t in (y, *last, x.grad, h.grad, *(p.grad for p in layer.parameters()))]

for Kind in (pf.nn.LSTM, pf.nn.GRU):
    for how in ({}, {'bias': False}):
        for got, want in zip(results('rocm', Kind, **how), results('cpu', Kind, **how)):
            assert got.shape == want.shape and (got - want).abs().max().item() <= 1e-5 * (1 + want.abs().max().item())
print('right')
"""


def with_libraries(program, tmp_path, *flags):
    libraries = tmp_path / "libraries"
    shutil.copytree(program.libraries, libraries)
    for name, text, extra in (("libMIOpen.so.1", MIOPEN, [f"-L{libraries}", "-lamdhip64", "-lm"]), ("librocblas.so.5", ROCBLAS, [])):
        source = tmp_path / f"{name}.c"
        source.write_text(text)
        subprocess.run(["cc", *flags, "-w", "-shared", "-fPIC", "-o", pathlib.Path(libraries) / name, source, *extra], check=True)
    program.libraries = libraries
    (tmp_path / "TensileLibrary_gfx942.dat").touch()
    return {"ROCBLAS_TENSILE_LIBPATH": str(tmp_path), "ROCM_PATH": str(tmp_path)}


# The rocBLAS above only has kernels, it runs none: products are PyFlame's.
OWN = {"PYFLAME_FORCE": "recurrent:gpu.dnn;recurrent_grad:gpu.dnn"}


def test_layers_by_miopen(program, tmp_path):
    found = with_libraries(program, tmp_path)
    out = program.run(PROGRAM, **OWN, **found)
    assert "right" in out and out.count("ran forward 0") == 4 and out.count("ran backward") == 8


def test_inference_by_miopen(program, tmp_path):
    found = with_libraries(program, tmp_path)
    out = program.run("""
pf.use_deterministic_algorithms(False)
for how in ({}, {'bias': False}):
    layer, x = pf.nn.GRU(4, 6, **how), pf.arange(0, 60, dtype='float32').reshape(5, 3, 4).sin()
    with pf.no_grad():
        want = layer(x)[0]
        got = layer.to('rocm')(x.to('rocm'))[0].to('cpu')
    assert (got - want).abs().max().item() < 1e-5
print('right')
""", **OWN, **found)
    assert "right" in out and out.count("ran forward 1") == 2


def test_what_miopen_refuses_goes_step_by_step(program, tmp_path):
    found = with_libraries(program, tmp_path)
    out = program.run("""
pf.use_deterministic_algorithms(False)
for how in ({'num_layers': 2}, {'bidirectional': True}, {'dtype': pf.float64}):
    layer = pf.nn.GRU(4, 6, **how)
    x = pf.ones(5, 3, 4, dtype=how.get('dtype'))
    want = layer(x)[0].detach()
    assert (layer.to('rocm')(x.to('rocm'))[0].to('cpu') - want).abs().max().item() < 1e-5
print('right')
""", **OWN, **found)
    assert "right" in out and "ran forward" not in out


def test_libraries_only_on_request(program, tmp_path):
    found = with_libraries(program, tmp_path)
    out = program.run("""
pf.use_deterministic_algorithms(False)
layer, x = pf.nn.LSTM(4, 6, device='rocm'), pf.ones(5, 3, 4, device='rocm')
print(pf.explain(lambda: layer(x)[0].sum().item()))
""", **found)
    assert "MIOpen computes recurrent layers on request only" in out and "ran forward" not in out


def test_an_error_of_miopen_is_raised(program, tmp_path):
    found = with_libraries(program, tmp_path, "-DFAILS")
    out = program.run("""
pf.use_deterministic_algorithms(False)
layer = pf.nn.LSTM(4, 6, device='rocm')
print(refused(RuntimeError, lambda: layer(pf.ones(5, 3, 4, device='rocm'))[0].sum().item()))
""", **OWN, **found)
    assert "recurrent: miopenRNNForward failed with error 7" in out
