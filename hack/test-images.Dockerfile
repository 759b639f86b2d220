# Images that only the end-to-end tests use. named-user: a runner whose USER is a name, which `runAsNonRoot` cannot judge
# without a number. crash: a program that fails at once. workload: one that does what a test tells it to.
ARG BASE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BASE} AS named-user
COPY recif-runner /recif-runner
COPY passwd /etc/passwd
USER app
ENTRYPOINT ["/recif-runner"]

FROM scratch AS crash
COPY busybox /bin/false
ENTRYPOINT ["/bin/false"]

FROM ${BASE} AS workload
COPY workload /workload
USER 1000:1000
ENTRYPOINT ["/workload"]
