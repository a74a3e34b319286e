"""botocore's own description of the Converse API: the oracle of requests and streams."""

import gzip
import json
from functools import cache
from pathlib import Path

import botocore
from botocore.model import OperationModel, ServiceModel


@cache
def converse_operation() -> OperationModel:
    file = Path(botocore.__file__).parent / "data/bedrock-runtime/2023-09-30/service-2.json.gz"
    service = ServiceModel(json.loads(gzip.decompress(file.read_bytes())), "bedrock-runtime")
    return service.operation_model("ConverseStream")
