"""Converts an image that models do not accept (TIFF, BMP, HEIC, AVIF) to JPEG, in base64."""

import base64
from io import BytesIO

from holodeck.files.documents import picture
from holodeck.files.documents.document import Document

LONG_SIDE = 2_000  # pixels: models scale larger images down themselves
QUALITY = 85


def read(data: bytes) -> Document:
    image = picture.opened(data)
    pages = getattr(image, "n_frames", 1)
    if pages > 1:  # a fax, not a photograph: its pages are read as text
        return Document(details=[f"{pages} pages"])
    size = f"{image.width} x {image.height} pixels"
    small = picture.on_white(picture.upright(image, LONG_SIDE))
    file = BytesIO()
    small.save(file, "JPEG", quality=QUALITY)
    return Document(iter([base64.b64encode(file.getvalue()).decode("ascii")]), [size])
