{{/* Labels of a definition. */}}
{{- define "recif-crds.labels" -}}
{{- $fixed := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_")
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- toYaml (merge $fixed .Values.commonLabels) }}
{{- end }}
{{/* Annotations of a definition. */}}
{{- define "recif-crds.annotations" -}}
{{- if .Values.keep }}
helm.sh/resource-policy: keep
{{- end }}
{{- end }}
