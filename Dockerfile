# A server for one store, for CPUs: docs/containers.md
FROM python:3.12-slim AS wheel
WORKDIR /checkout
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
# By default torch brings libraries for GPUs, some 5 GB; an index of torch for CPUs spares them (docs/containers.md).
ARG TORCH_INDEX=
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    PIP_INDEX_URL="$TORCH_INDEX" pip install --no-cache-dir "torch>=2.11" "torchvision>=0.26" \
    && pip install --no-cache-dir "$(echo /wheels/fairshot-*.whl)[photos,serve]"
RUN useradd --create-home --uid 10001 fairshot && install --directory --owner fairshot /store
COPY --chmod=755 docker/entrypoint.sh /usr/local/bin/fairshot-entrypoint
USER 10001
ENV HOME=/home/fairshot OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1
VOLUME /store
EXPOSE 8000
# The start may include the conversion of weights; later a request is answered within milliseconds.
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/api/health', timeout=4)"]
ENTRYPOINT ["fairshot-entrypoint"]
