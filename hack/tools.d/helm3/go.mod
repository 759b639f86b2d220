// The pins of Helm 3, apart from those of Helm 4, which they would change. After a change of its version run `go mod tidy` here and
// commit.
module recif/hack/tools/helm3

go 1.26.0

tool helm.sh/helm/v3/cmd/helm

require helm.sh/helm/v3 v3.21.4
