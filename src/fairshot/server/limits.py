"""How much clients may send, so that none of them keeps the others waiting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on connections, requests and images."""

    connections: int = 512  # open at once
    address_connections: int = 128  # open at once, of one address
    header_seconds: float = 5.0  # until the head of a request must have arrived
    body_seconds: float = 30.0  # until its body must have arrived; without a token the time of a head
    reading_seconds: float = 20.0  # for which a client may read nothing of a response

    request_bytes: int = 32 * 2**20  # of a request with images
    text_bytes: int = 2**16  # of any other request; parsed JSON takes many times its size
    login_bytes: int = 4096  # of a request to log in, which nobody has to be known for
    arriving_bytes: int = 256 * 2**20  # of all requests that are not answered yet
    small_request_bytes: int = 4 * 2**20  # a quarter of the arriving bytes is kept for requests up to this
    parts: int = 64  # of a request with images, by the boundaries between them
    tiny_chunks: int = 64  # of a body sent in chunks; further ones must have on average
    chunk_bytes: int = 1024

    file_bytes: int = 12 * 2**20
    files: int = 20  # in one request
    pixels: int = 40_000_000  # of one image, judged by its header
    side: int = 12_000  # pixels of the longer side
    aspect: int = 20  # longer over shorter side

    decoders: int = 2  # processes that decode images; one of them always decodes small ones
    decoder_bytes: int = 400 * 2**20  # of memory that one image may take, beside those of the process
    large_decoder_bytes: int = 700 * 2**20  # the same for large images
    decoder_seconds: float = 8.0  # of computing that one image may take
    decoder_header_seconds: float = 1.0  # of computing that its header may take
    large_pixels: int = 16_000_000  # an image of more pixels, times its scans by three, is large
    decoding_wait: float = 4.0  # seconds for which an image may wait for a decoder
    large_decoding_wait: float = 20.0  # the same for large images

    decoded_bytes: int = 128 * 2**20  # of all decoded images that are not answered yet
    request_decoded_bytes: int = 32 * 2**20  # the same of one request
    recent_pictures: int = 200  # asked lately and kept in memory, for people to say what they show
    recent_bytes: int = 32 * 2**20  # of those, together

    waiting: int = 64  # images that may wait for an answer; further ones are refused
    batch: int = 16  # images answered together
