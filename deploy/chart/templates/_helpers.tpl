{{/* What everything of a release is called. 40 characters, so that a suffix and a pod's number fit as well. */}}
{{- define "ragmon.name" -}}
{{- if contains "ragmon" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-ragmon" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels that find the pods of one part. Call it with (list $ "server"). */}}
{{- define "ragmon.selector" -}}
app.kubernetes.io/name: ragmon
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* All labels of an object of one part. Call it with (list $ "server"). */}}
{{- define "ragmon.labels" -}}
{{ include "ragmon.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version }}
{{- end }}

{{/* The part that has the alarms and that people and Prometheus ask. */}}
{{- define "ragmon.judge" -}}
{{- if eq .Values.mode "single" }}server{{ else }}head{{ end }}
{{- end }}

{{- define "ragmon.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What every pod has, up to its containers. */}}
{{- define "ragmon.pod" -}}
automountServiceAccountToken: false    # it asks Kubernetes nothing
enableServiceLinks: false              # or variables called RAGMON_... of the Services would be in its environment
terminationGracePeriodSeconds: 30      # it drains for ten seconds at most
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Spreads the pods of one part over the nodes. Call it with (list $ "work"). */}}
{{- define "ragmon.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "ragmon.selector" . | nindent 8 }}
{{- end }}

{{- define "ragmon.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "ragmon.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 5
  timeoutSeconds: 5
startupProbe:                          # it may have much to read again after a hard end
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 5
  failureThreshold: 60
{{- end }}

{{/* The disk of a StatefulSet, or what stands for it. Call it with (list $ "state" "10Gi"). */}}
{{- define "ragmon.claim" -}}
{{- $root := index . 0 }}
{{- if $root.Values.persistence.enabled }}
volumeClaimTemplates:
  - metadata: {name: {{ index . 1 }}}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with $root.Values.persistence.storageClass }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources:
        requests: {storage: {{ index . 2 }}}
{{- end }}
{{- end }}

{{/* A server or a head: one container with a disk. Call it with (list $ "server" "server.toml"). */}}
{{- define "ragmon.server" -}}
{{- $root := index . 0 }}
template:
  metadata:
    labels: {{- include "ragmon.selector" (list $root (index . 1)) | nindent 6 }}
  spec:
    {{- include "ragmon.pod" $root | nindent 4 }}
    containers:
      - name: ragmon
        image: {{ include "ragmon.image" $root | quote }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args: [serve, --config, /etc/ragmon/{{ index . 2 }}]
        env:
          - {name: RAGMON_TOKEN_FILE, value: /run/secrets/ragmon/token}
          # A folder that ragmon makes for itself: fsGroup leaves the volume's own one readable by all.
          - {name: RAGMON_STATE_DIR, value: /var/lib/ragmon/state}
        ports:
          - {name: otlp, containerPort: 4318}
          - {name: grpc, containerPort: 4317}
          - {name: admin, containerPort: 9464}
        {{- include "ragmon.probes" $root | nindent 8 }}
        resources: {{- toYaml $root.Values.resources.server | nindent 10 }}
        {{- include "ragmon.confined" $root | nindent 8 }}
        volumeMounts:
          - {name: state, mountPath: /var/lib/ragmon}
          # Whole folders: Kubernetes swaps a new version in by a symbolic link, where ragmon finds it.
          - {name: config, mountPath: /etc/ragmon, readOnly: true}
          - {name: token, mountPath: /run/secrets/ragmon, readOnly: true}
          - {name: tmp, mountPath: /tmp}
    volumes:
      - name: config
        configMap: {name: {{ include "ragmon.name" $root }}}
      - name: token
        secret: {secretName: {{ $root.Values.token.secret }}, defaultMode: 0440}
      - name: tmp
        emptyDir: {}
      {{- if not $root.Values.persistence.enabled }}
      - name: state
        emptyDir: {}
      {{- end }}
{{- include "ragmon.claim" (list $root "state" $root.Values.persistence.size) }}
{{- end }}

{{/* Lets a pod ask for names. */}}
{{- define "ragmon.dns" -}}
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: kube-system}
      podSelector:
        matchLabels: {k8s-app: kube-dns}
  ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}

{{/* Lets a pod reach Kafka. */}}
{{- define "ragmon.kafka" -}}
{{- with .Values.networkPolicy.kafka }}
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: {{ .namespace }}}
      podSelector:
        matchLabels: {app.kubernetes.io/name: {{ .label }}}
  ports:
    - {port: {{ .port }}, protocol: TCP}
{{- end }}
{{- end }}

{{/* Producers: pods that are labelled so, in namespaces that are labelled so. */}}
{{- define "ragmon.producers" -}}
- namespaceSelector:
    matchLabels: {{ dict .Values.networkPolicy.producerLabel "true" | toYaml | nindent 6 }}
  podSelector:
    matchLabels: {{ dict .Values.networkPolicy.producerLabel "true" | toYaml | nindent 6 }}
{{- end }}

{{/* Whoever watches: Prometheus, and Argo Rollouts' controller, which asks /api/compare. */}}
{{- define "ragmon.watchers" -}}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ .Values.networkPolicy.monitoringNamespace }}}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: argo-rollouts}
  podSelector:
    matchLabels: {app.kubernetes.io/name: argo-rollouts}
{{- end }}
