# ESync with MXNet, for a user without privileges. The usual build is for CPUs; for NVIDIA GPUs name
# the extra and a base with that CUDA and with Python 3.10 or later:
#
#     docker build -t esync .
#     docker build -t esync:cu117 --build-arg EXTRA=cu117 \
#         --build-arg BASE=nvidia/cuda:11.7.1-cudnn8-runtime-ubuntu22.04 .
#
#     docker run --rm esync doctor
#     docker run --rm --shm-size=1g -v "$PWD:/work" esync launch cluster.yaml      # one machine
#     docker run --rm --network=host -v "$PWD:/work" esync launch cluster.yaml       # several, over ssh
#
# scripts/check_container.sh checks this file and runs its steps without Docker. It has not been
# built for GPUs.
ARG BASE=debian:bookworm-slim

# hadolint ignore=DL3006
FROM ${BASE} AS build
ARG EXTRA=cpu
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends python3 python3-venv && \
    rm -rf /var/lib/apt/lists/*
COPY . /src
RUN python3 -m venv /opt/esync && \
    /opt/esync/bin/python -m pip install --no-cache-dir --disable-pip-version-check "/src[${EXTRA}]"

# hadolint ignore=DL3006
FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends python3 libgomp1 libquadmath0 openssh-client ca-certificates && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --create-home --uid 1000 esync && \
    install -d -o esync -g esync /work
COPY --from=build /opt/esync /opt/esync
ENV PATH=/opt/esync/bin:$PATH
USER 1000
WORKDIR /work
ENTRYPOINT ["esync"]
CMD ["--help"]
