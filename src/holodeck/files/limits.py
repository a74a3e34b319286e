"""How much of files is accepted, read and shown: all limits, each with its reason or its requirement."""

import msgspec

from holodeck.core.sizes import MB


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the process that reads one document. It is killed at `wall`; a second before, it sends what it has."""

    memory: int = 768 * MB
    cpu: int = 10  # seconds
    wall: float = 15.0


# A page of dense print takes 11 s of CPU and 560 MB at the size that pictures are read in.
PICTURE_LIMITS = WorkerLimits(memory=1_536 * MB, cpu=25, wall=30.0)


class FileLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_files: int = 10  # SRV-12
    max_base64_bytes: int = 10 * MB  # bytes per file, decoded (SRV-13)
    max_file_bytes: int = 50 * MB  # SRV-13
    max_request_bytes: int = 100 * MB  # SRV-13
    max_image_bytes: int = 20 * MB  # bytes per image: model endpoints accept no larger request
    max_native_bytes: int = 2 * MB  # bytes per PDF or audio that a model reads itself: it stays in the conversation
    max_pixels: int = 50_000_000  # pixels per image (T19)
    max_characters: int = 100_000  # characters per file that the model sees: about 25,000 tokens
    workers: int = 2  # documents that are read at the same time, in the whole server
    queue_seconds: float = 30.0  # how long a document may wait in the queue
    max_scans: int = 20  # pages of a PDF that are read by text recognition: up to 25 s of CPU each
    documents: WorkerLimits = WorkerLimits()
    pictures: WorkerLimits = PICTURE_LIMITS
