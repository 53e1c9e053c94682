"""Puts objects into an object store with S3's protocol, or reads them and checks every byte.

    objects_client.py fill|read URL FIRST COUNT BYTES STREAMS

The content of an object follows from its number. `read` reads the objects FIRST to FIRST + COUNT - 1
one after the other, each in ranges of RANGE_BYTES of which STREAMS are read at a time, and prints:

    RESULT begin=S end=S bytes=N wrong=N
"""

import io
import random
import sys
import time

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

RANGE_BYTES = 1 << 20
BUCKET = "objects"


def content(number: int, size: int) -> bytes:
    return random.Random(number).randbytes(size)


def main() -> None:
    mode, url = sys.argv[1:3]
    first, count, size, streams = map(int, sys.argv[3:])
    store = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="lab",
        aws_secret_access_key="lab",
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=streams),
    )
    numbers = range(first, first + count)
    if mode == "fill":
        store.create_bucket(Bucket=BUCKET)
        for number in numbers:
            store.put_object(Bucket=BUCKET, Key=str(number), Body=content(number, size))
        print("RESULT filled")
        return
    transfer = TransferConfig(
        multipart_threshold=RANGE_BYTES,
        multipart_chunksize=RANGE_BYTES,
        max_concurrency=streams,
        use_threads=streams > 1,
    )
    expected = [content(number, size) for number in numbers]
    wrong = total = 0
    begin = time.monotonic()
    for number, wanted in zip(numbers, expected):
        buffer = io.BytesIO()
        store.download_fileobj(BUCKET, str(number), buffer, Config=transfer)
        total += buffer.tell()
        wrong += buffer.getvalue() != wanted
    end = time.monotonic()
    print(f"RESULT begin={begin} end={end} bytes={total} wrong={wrong}")


main()
