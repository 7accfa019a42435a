{{- define "regatta.name" -}}
{{- if contains "regatta" .Release.Name }}{{ .Release.Name | trunc 30 | trimSuffix "-" }}{{ else }}{{ printf "%s-regatta" .Release.Name | trunc 30 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "regatta.selector" -}}
app.kubernetes.io/name: regatta
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "regatta.labels" -}}
{{ include "regatta.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What a pod of any part has in common: no root, no token of the cluster. */}}
{{- define "regatta.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "regatta.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - secretRef: {name: {{ .Values.secretName }}}
{{- end }}

{{/* The settings that all parts share: literals, so that the migration before an installation has them, too. */}}
{{- define "regatta.settings" -}}
- {name: HOME, value: /data}
- {name: REGATTA_DATA_DIR, value: /data}
- {name: REGATTA_MODEL_ROOTS, value: /models}
- {name: REGATTA_DATA_ROOTS, value: /datasets}
- {name: REGATTA_API_KEYS_REQUIRED, value: "true"}
- {name: REGATTA_LOG_FORMAT, value: json}
- {name: REGATTA_ARTIFACTS_URL, value: {{ .Values.artifacts.url | default "file:///artifacts" | quote }}}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{- define "regatta.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
- {name: models, mountPath: /models, readOnly: true}
- {name: datasets, mountPath: /datasets, readOnly: true}
{{- if not .Values.artifacts.url }}
- {name: artifacts, mountPath: /artifacts}
{{- end }}
{{- end }}

{{/* All volumes but `data`, which differs from part to part. */}}
{{- define "regatta.volumes" -}}
- name: tmp
  emptyDir: {}
{{- range $name, $claim := dict "models" .Values.models.existingClaim "datasets" .Values.datasets.existingClaim }}
- name: {{ $name }}
  {{- if $claim }}
  persistentVolumeClaim: {claimName: {{ $claim }}, readOnly: true}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- if not .Values.artifacts.url }}
- name: artifacts
  persistentVolumeClaim:
    claimName: {{ .Values.artifacts.existingClaim | default (printf "%s-artifacts" (include "regatta.name" .)) }}
{{- end }}
{{- end }}
