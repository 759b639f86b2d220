// The pin of the module with the CRDs of the Prometheus operator. Nothing of it is compiled, so `go mod tidy` would remove it. After a
// change of the version empty go.sum, run `go mod download github.com/prometheus-operator/prometheus-operator` here, and commit.
module recif/hack/prometheus

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
