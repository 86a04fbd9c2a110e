# syntax=docker/dockerfile:1
# docker build --target cpu -t sluice:cpu .          the CPU server (default target)
# docker build --target cuda -t sluice:cuda .        with the CUDA engine; run it with --gpus all and NVIDIA driver 580 or newer
# Publish the ports and mount the models read-only:
#   docker run -p 50051:50051 -p 8000:8000 -v /models:/models:ro sluice:cpu --model /models/model.gguf

FROM debian:12-slim AS packages
RUN apt-get update && apt-get install -y --no-install-recommends \
      g++ cmake ninja-build ccache pkg-config ca-certificates \
      libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libabsl-dev prometheus-cpp-dev \
      libpcre2-dev libutf8proc-dev nlohmann-json3-dev libboost-dev libssl-dev libcli11-dev libedit-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src

FROM packages AS build
COPY . .
RUN --mount=type=cache,target=/root/.cache/ccache \
    cmake -S . -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DSLUICE_BUILD_TESTS=OFF \
    && ninja -C /build sluice-server sluice \
    && strip /build/bin/sluice-server /build/bin/sluice

# The toolkit, and a CMake that knows it, are NVIDIA's and Kitware's wheels from PyPI: a layer of its own, 1 GB to fetch.
FROM packages AS build-cuda
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
COPY deploy/lib.sh deploy/
RUN source deploy/lib.sh && use_cuda /opt/cuda
COPY . .
RUN --mount=type=cache,target=/root/.cache/ccache \
    source deploy/lib.sh && use_cuda /opt/cuda \
    && CMAKE=$CUDA_CMAKE build /build sluice-server -DCMAKE_BUILD_TYPE=Release -DSLUICE_BUILD_TESTS=OFF "${CUDA_ARGS[@]}" \
    && strip /build/bin/sluice-server

FROM debian:12-slim AS runtime
RUN apt-get update && apt-get install -y --no-install-recommends \
      libgrpc++1.51 libprotobuf32 libprometheus-cpp-core1.0 libpcre2-8-0 libutf8proc2 libedit2 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /build/bin/sluice-server /build/bin/sluice /usr/local/bin/
COPY LICENSE /usr/share/doc/sluice/
# Group 0 may do what the user may: OpenShift runs containers under an arbitrary user in group 0.
RUN mkdir -p /models && chgrp 0 /models && chmod g=u /models
USER 65532:0
# gRPC, HTTP (metrics, health). The admin service listens on loopback only and is not exposed.
EXPOSE 50051 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["sluice", "health", "--server", "localhost:50051", "--service", "readiness"]
ENTRYPOINT ["sluice-server"]
LABEL org.opencontainers.image.title="sluice" \
      org.opencontainers.image.description="Model server for large language models: gRPC streaming, continuous batching, paged KV cache" \
      org.opencontainers.image.licenses="Apache-2.0"

# libcuda comes from the NVIDIA container runtime; the image brings no driver, and no cuBLASLt (--gemm-library-from).
FROM runtime AS cuda
COPY --from=build-cuda /build/bin/sluice-server /usr/local/bin/
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
CMD ["--device", "auto"]

FROM runtime AS cpu
CMD ["--device", "cpu"]
