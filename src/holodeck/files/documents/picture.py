"""Recognises text in images. The engine's models are in its wheel: nothing is downloaded.

The image is scaled down first: the time and memory of recognition grow with its area, and letters that people can read
stay readable. Lines are recognised one by one, so that a page too dense for the time limit still yields its beginning.
A TIFF may have several pages.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps, ImageSequence

from holodeck.files.documents.document import Document, DocumentRefused, counted

MAX_PIXELS = 50_000_000
LONG_SIDE = 1_600  # pixels: an A4 page of 10-point letters is still read
MIN_SCORE = 0.5
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "AVIF")
FAULTS = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)
SETTINGS = {
    "Global.log_level": "critical",
    "Det.limit_type": "max",  # the default enlarges small images: more memory for the same text
    "Det.limit_side_len": LONG_SIDE,
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,  # two threads take more CPU and no less time
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
}


def read(data: bytes) -> Document:
    image = opened(data)
    size = f"{image.width} x {image.height} pixels"
    pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    if pages > 1:
        return Document(_pages(image), [size, counted(pages, "page"), "read by text recognition"])
    return Document(lines(_pixels(image)), [size, "read by text recognition"])


def opened(data: bytes) -> Image.Image:
    """Opens the image before its pixels are decoded. Refuses one with too many."""
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    formats = (*FORMATS, *_heif()) if data[4:8] == b"ftyp" else FORMATS
    try:
        image: Image.Image = Image.open(BytesIO(data), formats=formats)
    except Image.DecompressionBombError as error:
        raise DocumentRefused("too_large", f"has more than {MAX_PIXELS:,} pixels") from error
    except FAULTS as error:
        raise _damaged() from error
    if image.width * image.height > MAX_PIXELS:  # Pillow itself only warns up to twice as many
        raise DocumentRefused("too_large", f"has {image.width:,} x {image.height:,} pixels")
    return image


def _heif() -> tuple[str, ...]:
    from pi_heif import register_heif_opener  # type: ignore[import-untyped]  # noqa: PLC0415  other images do without

    register_heif_opener()
    return ("HEIF",)


def upright(image: Image.Image, long_side: int) -> Image.Image:
    try:
        image.draft("RGB", (long_side, long_side))  # a JPEG can be decoded at a smaller size
        image.load()
        image = ImageOps.exif_transpose(image)
        image.thumbnail((long_side, long_side))
    except FAULTS as error:
        raise _damaged() from error
    return image


def on_white(image: Image.Image) -> Image.Image:
    try:
        seen = image.convert("RGBA")
    except FAULTS as error:
        raise _damaged() from error
    paper = Image.new("RGBA", seen.size, "white")
    return Image.alpha_composite(paper, seen).convert("RGB")


def for_engine(image: Image.Image) -> Any:
    """Returns rows of blue, green, red, the order that the engine expects."""
    return np.asarray(image)[:, :, ::-1]


def _pixels(image: Image.Image) -> Any:
    return for_engine(on_white(upright(image, LONG_SIDE)))


def _damaged() -> DocumentRefused:
    return DocumentRefused("damaged", "is damaged: it cannot be decoded as an image")


def _pages(image: Image.Image) -> Iterator[str]:
    for number, frame in enumerate(ImageSequence.Iterator(image), 1):
        if frame.width * frame.height > MAX_PIXELS:
            yield f"Page {number}\n[This page has too many pixels.]"
            continue
        found = list(lines(_pixels(frame.copy())))
        yield "\n".join([f"Page {number}", *(found or ["[No text was found on it.]"])])


def lines(pixels: Any) -> Iterator[str]:
    from rapidocr import RapidOCR  # noqa: PLC0415  slow to import: a broken image does not need it

    engine: Any = RapidOCR(params=SETTINGS)
    found = engine(pixels, use_det=True, use_cls=False, use_rec=False).boxes
    row: list[str] = []
    bottom = 0.0
    for box in [] if found is None else found:
        (left, top), (right, low) = box.min(0).clip(0).astype(int), box.max(0).astype(int) + 1
        if row and (top + low) / 2 > bottom:
            yield " ".join(row)
            row = []
        bottom = low if not row else bottom
        row += _words(engine, pixels[top:low, left:right])
    if row:
        yield " ".join(row)


def _words(engine: Any, pixels: Any) -> list[str]:
    if not pixels.size:
        return []
    result = engine(pixels, use_det=False, use_cls=False, use_rec=True)
    scored = zip(result.txts or (), result.scores or (), strict=False)
    return [text for text, score in scored if score >= MIN_SCORE and text.strip()]
