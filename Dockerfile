# All images, from one file. On a machine with a registry `docker build --target operator .` compiles and packs
# (--build-arg PROFILE=release: sooner built, and slower). On one without,
# hack/images compiles outside and gives two images of its own: BASE, and BINARIES with the programs at its root.
ARG BASE=gcr.io/distroless/cc-debian12:nonroot
ARG RUST=rust:1-bookworm
ARG NODE=node:22-bookworm
ARG BINARIES=compile

FROM ${NODE} AS ui
WORKDIR /ui
COPY src/control_plane/ui .
RUN npm ci --ignore-scripts && npm run build

FROM ${RUST} AS compile
ARG PROFILE=dist
WORKDIR /src
COPY . .
COPY --from=ui /ui/dist src/control_plane/ui/dist
RUN cargo build --profile $PROFILE --locked --bin recif --bin recif-runner \
    && cp target/$PROFILE/recif target/$PROFILE/recif-runner / \
    && RECIF_PROFILE=$PROFILE hack/build-proxy \
    && cp target/$PROFILE/recif-proxy /

FROM ${BINARIES} AS binaries

FROM ${BASE} AS operator
COPY --from=binaries /recif /recif
USER 65532:65532
ENTRYPOINT ["/recif"]

FROM ${BASE} AS runner
COPY --from=binaries /recif-runner /recif-runner
USER 65532:65532
ENTRYPOINT ["/recif-runner"]

# Linked statically (it resolves no names), so that the same program also runs in an image of a user's.
FROM scratch AS proxy
COPY --from=binaries /recif-proxy /recif-proxy
USER 65532:65532
ENTRYPOINT ["/recif-proxy"]
