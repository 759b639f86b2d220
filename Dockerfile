# All images, from one file. On a machine with a registry `docker build --target operator .` compiles and packs
# (--build-arg PROFILE=release: sooner built, and slower); with --platform it compiles for another architecture. On one without,
# hack/images and hack/dist compile outside and give two images of their own: BASE, and BINARIES with the programs at its root.
ARG BASE=gcr.io/distroless/cc-debian12:nonroot
ARG RUST=rust:1-bookworm
ARG NODE=node:22-bookworm
ARG BINARIES=compile
ARG VERSION=0.1.0
ARG REVISION=unknown

FROM --platform=$BUILDPLATFORM ${NODE} AS ui
WORKDIR /ui
COPY src/control_plane/ui .
RUN npm ci --ignore-scripts && npm run build

# Compilers are programs of the machine that builds: nothing is emulated.
FROM --platform=$BUILDPLATFORM ${RUST} AS compile
ARG PROFILE=dist
ARG TARGETARCH
WORKDIR /src
COPY . .
COPY --from=ui /ui/dist src/control_plane/ui/dist
RUN hack/programs --packages "$TARGETARCH" && RECIF_PROFILE=$PROFILE hack/programs "$TARGETARCH" /

FROM ${BINARIES} AS binaries

FROM ${BASE} AS operator
ARG VERSION
ARG REVISION
COPY --from=binaries /recif /recif
USER 65532:65532
ENTRYPOINT ["/recif"]
LABEL org.opencontainers.image.title="Récif" \
      org.opencontainers.image.description="Operator, gateway and control plane of Récif, and its command line" \
      org.opencontainers.image.source="https://github.com/recif-dev/recif" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"

FROM ${BASE} AS runner
ARG VERSION
ARG REVISION
COPY --from=binaries /recif-runner /recif-runner
USER 65532:65532
ENTRYPOINT ["/recif-runner"]
LABEL org.opencontainers.image.title="Récif runner" \
      org.opencontainers.image.description="Runs agents without an image of their own, and flows, on Récif" \
      org.opencontainers.image.source="https://github.com/recif-dev/recif" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"

# Linked statically (it resolves no names), so that the same program also runs in an image of a user's.
FROM scratch AS proxy
ARG VERSION
ARG REVISION
COPY --from=binaries /recif-proxy /recif-proxy
USER 65532:65532
ENTRYPOINT ["/recif-proxy"]
LABEL org.opencontainers.image.title="Récif proxy" \
      org.opencontainers.image.description="The sidecar of each Pod that runs on Récif, and the bridge to MCP servers" \
      org.opencontainers.image.source="https://github.com/recif-dev/recif" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
