{{/* Labels of an object: (list $ NAME), where NAME is the component; empty for an object of all. */}}
{{- define "recif.labels" -}}
{{- $root := index . 0 -}}
{{- $fixed := dict
  "app.kubernetes.io/part-of" "recif"
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- with index . 1 }}{{ $_ := set $fixed "app.kubernetes.io/name" . }}{{ end -}}
{{- toYaml (merge $fixed $root.Values.commonLabels) }}
{{- end }}

{{/* Name of an image: (list $ NAME), where NAME is recif, proxy or runner. */}}
{{- define "recif.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
{{- $name := printf "%s/%s" $root.Values.image.registry $image.repository | trimPrefix "/" -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default $root.Chart.AppVersion $root.Values.image.tag) -}}
{{- end -}}
{{- end }}

{{/* Metadata of the Pods: (list $ PART NAME), where PART is the component's values. No label changes with the chart alone. */}}
{{- define "recif.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $fixed := dict "app.kubernetes.io/name" (index . 2) "app.kubernetes.io/part-of" "recif" -}}
labels:
  {{- toYaml (merge $fixed $part.podLabels $root.Values.commonLabels) | nindent 2 }}
{{- with $part.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What every Pod spec begins with: (list $ PART NAME). */}}
{{- define "recif.podSpec" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
serviceAccountName: {{ index . 2 }}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Security context of the Pods. */}}
{{- define "recif.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Security context of the containers. */}}
{{- define "recif.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Spreads the Pods of a component over the nodes: its name. */}}
{{- define "recif.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      app.kubernetes.io/name: {{ . }}
  matchLabelKeys: [pod-template-hash]
{{- end }}

{{/* Startup and liveness probe: the name of the port. */}}
{{- define "recif.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: {{ . }}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: {{ . }}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}

{{/* Flag with the namespaces to work in; empty for all. */}}
{{- define "recif.namespaces" -}}
{{- with .Values.watchNamespaces }}
- --namespaces={{ join "," . }}
{{- end }}
{{- end }}

{{/* Variables that name the collector to gateway or operator: by the token the control plane knows them. */}}
{{- define "recif.collector" -}}
{{- with .Values.telemetry.endpoint -}}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ ternary "http://recif-control-plane:4318" . (eq . "builtin") | quote }}
{{- if eq . "builtin" }}
- name: RECIF_OTLP_TOKEN_FILE
  value: /var/run/secrets/recif/token
{{- end }}
{{- end }}
{{- end }}

{{/* Mount of that token; nothing without the control plane as collector. */}}
{{- define "recif.tokenMount" -}}
{{- if eq .Values.telemetry.endpoint "builtin" -}}
- name: telemetry-token
  mountPath: /var/run/secrets/recif
  readOnly: true
{{- end }}
{{- end }}

{{/* Volume of that token, which nothing but the receiver of spans takes. */}}
{{- define "recif.tokenVolume" -}}
{{- if eq .Values.telemetry.endpoint "builtin" -}}
- name: telemetry-token
  projected:
    sources:
      - serviceAccountToken:
          audience: recif-telemetry
          expirationSeconds: 3600
          path: token
{{- end }}
{{- end }}

{{/* Peers of a NetworkPolicy that read metrics, as the rule for a port; nothing if there are none. */}}
{{- define "recif.metricsRule" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.networkPolicy.metricsFrom }}
- ports:
    - port: {{ index $ 1 }}
      protocol: TCP
  from:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}
