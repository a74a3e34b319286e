"""Text in pictures, found by an engine whose models come in its own wheel: nothing is fetched.

The picture is made small first: the time and the memory that recognition takes grow with its area, and letters that
people can read stay readable. Lines are recognised one by one, so that a page too dense for the time there is still
gives its beginning.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from holodeck.files.documents.document import Document, DocumentRefused

MAX_PIXELS = 50_000_000
LONG_SIDE = 1_600  # pixels: an A4 page of 10-point letters is still read
MIN_SCORE = 0.5
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
SETTINGS = {
    "Global.log_level": "critical",
    "Det.limit_type": "max",  # the default enlarges small pictures: more memory for the same text
    "Det.limit_side_len": LONG_SIDE,
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,  # two threads take more CPU and no less time
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
}


def read(data: bytes) -> Document:
    return Document(_lines(_pixels(data)))


def _pixels(data: bytes) -> Any:
    """Rows of blue, green, red, the way the engine likes them, turned upright, on white where it is transparent."""
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    try:
        image: Image.Image = Image.open(BytesIO(data), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:  # Pillow itself only warns up to twice as many
            raise DocumentRefused("too_large", f"has {image.width:,} x {image.height:,} pixels")
        image.draft("RGB", (LONG_SIDE, LONG_SIDE))  # a JPEG can be decoded small in the first place
        image.load()
        image = ImageOps.exif_transpose(image)
        image.thumbnail((LONG_SIDE, LONG_SIDE))
        seen = image.convert("RGBA")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DocumentRefused("damaged", "is damaged: it cannot be decoded as an image") from error
    paper = Image.new("RGBA", seen.size, "white")
    return np.asarray(Image.alpha_composite(paper, seen).convert("RGB"))[:, :, ::-1]


def _lines(pixels: Any) -> Iterator[str]:
    from rapidocr import RapidOCR  # noqa: PLC0415  slow to import: a broken picture does not need it

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
