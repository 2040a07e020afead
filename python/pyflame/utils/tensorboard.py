"""SummaryWriter: numbers, histograms, images and text for TensorBoard, written by the package `tensorboard`."""
import os
import struct
import time
import zlib

from .. import _refused
from .._C import Tensor

__path__ = []  # PyTorch has a file below it, which is found as this module


def _package():
    """The parts of the tensorboard package that write event files."""
    try:
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise ImportError("SummaryWriter: the package 'tensorboard' is not installed; hint: pip install tensorboard") from error
    return event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, EventFileWriter


def _array(x):
    import numpy as np

    return x.detach().float().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)


def _number(tag, x):
    value = _array(x).reshape(-1)
    if value.size != 1:
        raise ValueError(f"add_scalar: '{tag}' is not one number; got {value.size} elements")
    return float(value[0])


def _joined(counts, edges, max_bins):
    """Counts and edges of at most max_bins bins: neighbours are added."""
    import numpy as np

    if max_bins is not None and max_bins < 1:
        raise ValueError(f"add_histogram: max_bins is not a number of bins; got {max_bins}; expected 1 or more, or None")
    if max_bins is None or len(counts) <= max_bins:
        return counts, edges
    each = -(-len(counts) // max_bins)
    return np.add.reduceat(counts, range(0, len(counts), each)), np.append(edges[:-1:each], edges[-1])


def _png(pixels):
    """A PNG file of uint8 pixels [height, width, channels]."""
    import numpy as np

    height, width, channels = pixels.shape

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # each row begins with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b"")


def _pixels(image, dataformats):
    """uint8 pixels [height, width, channels] of an image; floats are in [0, 1]. A batch (N) becomes a grid."""
    import numpy as np

    image, order = _array(image), dataformats.upper()
    if image.ndim != len(order):
        raise ValueError(f"add_image: dataformats does not fit; got '{dataformats}' for shape {image.shape}")
    if "N" in order:
        image = image.transpose([order.index(d) for d in ("NHWC" if "C" in order else "NHW")])
        image = image if image.ndim == 4 else image[..., None]
        columns = min(8, image.shape[0])
        rows = -(-image.shape[0] // columns)
        n, h, w, c = image.shape
        image = np.concatenate([image, np.zeros((rows * columns - n, h, w, c), image.dtype)])
        image = image.reshape(rows, columns, h, w, c).transpose(0, 2, 1, 3, 4).reshape(rows * h, columns * w, c)
    else:
        image = image.transpose([order.index(d) for d in ("HWC" if "C" in order else "HW")])
        image = image if image.ndim == 3 else image[..., None]
    if image.shape[2] not in (1, 3, 4):
        raise ValueError(f"add_image: an image has 1, 3 or 4 channels; got {image.shape[2]} with dataformats '{dataformats}'")
    return image if image.dtype == np.uint8 else (np.clip(image, 0, 1) * 255.0 + 0.5 * (image.dtype.kind == "f")).astype(np.uint8)


class SummaryWriter:
    """Writes event files for TensorBoard to a folder: log_dir, otherwise runs/<time>_<host><comment>. ImportError without the package `tensorboard`.

    purge_step: TensorBoard drops what an earlier run wrote from this step on. max_queue: how many events wait before they are written. flush_secs:
    seconds between writes. filename_suffix: the end of each file's name.
    """

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        self._event, self._summary, self._tensor, self._tensor_shape, writer = _package()
        if not log_dir:
            import socket

            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S_") + socket.gethostname() + comment)
        self.log_dir, self._settings = os.fspath(log_dir), (max_queue, flush_secs, filename_suffix)
        self._writer, self._make, self._parts = writer(self.log_dir, *self._settings), writer, {}
        if purge_step is not None:
            self._add(self._event.Event(file_version="brain.Event:2"), purge_step, None)
            self._add(self._event.Event(session_log=self._event.SessionLog(status=self._event.SessionLog.START)), purge_step, None)

    def _add(self, event, step, walltime, writer=None):
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        (writer or self._writer).add_event(event)

    def _value(self, step, walltime, writer=None, **value):
        summary = self._summary.Summary(value=[self._summary.Summary.Value(**value)])
        self._add(self._event.Event(summary=summary), step, walltime, writer)

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        """Adds a number, or a tensor of one element, as a point of the curve tag. global_step: the step, a number or None. walltime: seconds since 1970;
        None: now. new_style and double_precision are PyTorch's and change nothing. ValueError for more than one element.
        """
        self._value(global_step, walltime, tag=tag, simple_value=_number(tag, scalar_value))

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Several numbers, which one plot shows together: each in a run of its own."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self._parts:
                self._parts[folder] = self._make(folder, *self._settings)
            self._value(global_step, walltime, self._parts[folder], tag=main_tag, simple_value=_number(tag, value))

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        """How often values lie in each bin. bins: a number, edges, or a rule of numpy.histogram; 'tensorflow' is a rule of 30 bins.
        max_bins: neighbours are joined, equally many in each but the last, so that there are at most so many. PyTorch joins only from twice as many on."""
        import numpy as np

        values = _array(values).astype(np.float64).reshape(-1)
        if values.size == 0:
            raise ValueError(f"add_histogram: no values; got none for '{tag}'")
        counts, edges = _joined(*np.histogram(values, 30 if isinstance(bins, str) and bins == "tensorflow" else bins), max_bins)
        histogram = self._summary.HistogramProto(min=values.min(), max=values.max(), num=values.size, sum=values.sum(), sum_squares=float(values @ values),
                                                 bucket_limit=edges[1:].tolist(), bucket=counts.tolist())
        self._value(global_step, walltime, tag=tag, histo=histogram)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """Adds an image under tag, a tensor or array of uint8 or of floats in [0, 1]. dataformats: the order of its dims, such as CHW, HWC or HW; 1, 3 or 4
        channels. global_step: the step, a number or None. walltime: seconds since 1970; None: now. ValueError for another number of dims or channels.
        """
        pixels = _pixels(img_tensor, dataformats)
        image = self._summary.Summary.Image(height=pixels.shape[0], width=pixels.shape[1], colorspace=pixels.shape[2], encoded_image_string=_png(pixels))
        self._value(global_step, walltime, tag=tag, image=image)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Adds a batch of images as one image, a grid of up to 8 columns. dataformats: the order of the dims, NCHW, NHWC or NHW. global_step: the step, a
        number or None. walltime: seconds since 1970; None: now. The other arguments and the errors are those of add_image.
        """
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """Adds a figure of matplotlib, or each of a list, as an image under tag. close: whether they are closed after that. global_step: the step, a number
        or None. walltime: seconds since 1970; None: now.
        """
        import numpy as np

        for one in figure if isinstance(figure, list) else [figure]:
            one.canvas.draw()
            self.add_image(tag, np.asarray(one.canvas.buffer_rgba()), global_step, walltime, "HWC")
            if close:
                import matplotlib.pyplot as plt

                plt.close(one)

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        """Adds a text under tag, which TensorBoard shows as Markdown. global_step: the step, a number or None. walltime: seconds since 1970; None: now."""
        plugin = self._summary.SummaryMetadata.PluginData(plugin_name="text", content=b"")
        shape = self._tensor_shape.TensorShapeProto(dim=[self._tensor_shape.TensorShapeProto.Dim(size=1)])
        tensor = self._tensor.TensorProto(dtype="DT_STRING", string_val=[text_string.encode("utf-8")], tensor_shape=shape)
        self._value(global_step, walltime, tag=f"{tag}/text_summary", metadata=self._summary.SummaryMetadata(plugin_data=plugin), tensor=tensor)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        """Adds a run to the table of hyperparameters, in a folder of its own, run_name or the time. hparam_dict: the settings; values other than bool, int,
        float and str are written as str. metric_dict: the numbers that the run reached. hparam_domain_discrete: the possible values of settings.
        global_step: the step, or None.
        """
        from tensorboard.plugins.hparams import summary_v2

        settings = {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in hparam_dict.items()}
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        writer = self._make(folder, *self._settings)
        metrics = [summary_v2.Metric(name) for name in metric_dict]
        parameters = [summary_v2.HParam(k, summary_v2.Discrete(hparam_domain_discrete[k]) if hparam_domain_discrete and k in hparam_domain_discrete else None) for k in settings]
        for summary in (summary_v2.hparams_config_pb(parameters, metrics), summary_v2.hparams_pb(settings)):
            self._add(self._event.Event(summary=summary), global_step, None, writer)
        for name, value in metric_dict.items():
            self._value(global_step, None, writer, tag=name, simple_value=_number(name, value))
        writer.close()

    def get_logdir(self):
        """The folder that the files are written to, a str: log_dir, or the one that was chosen."""
        return self.log_dir

    def flush(self):
        """Writes the events that wait to the files, without closing them, those of add_scalars() too."""
        for writer in (self._writer, *self._parts.values()):
            writer.flush()

    def close(self):
        """Writes the events that wait and closes the files of this writer and of add_scalars()."""
        for writer in (self._writer, *self._parts.values()):
            writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


for _name in ("add_graph", "add_embedding", "add_audio", "add_video", "add_pr_curve", "add_custom_scalars", "add_mesh", "add_onnx_graph"):
    setattr(SummaryWriter, _name, _refused.function(f"SummaryWriter.{_name}", "numbers, histograms, images, figures, text and settings are written"))
