-- Spans of traces, each as gateway or operator gave it, or else its first sender. Times are nanoseconds since 1970, but `received` is in
-- milliseconds; `failed` is 1 or 0; `bytes` is about what the row takes.
CREATE TABLE spans (
    trace TEXT NOT NULL,
    span TEXT NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    conversation TEXT NOT NULL,
    started BIGINT NOT NULL,
    ended BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    received BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (trace, span)
);
CREATE INDEX spans_of_workload ON spans (kind, namespace, name, started);
CREATE INDEX spans_of_conversation ON spans (conversation, started);
-- With their sizes, so that summing these reads no row.
CREATE INDEX spans_oldest ON spans (received, trace, span, bytes);
