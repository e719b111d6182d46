{{- define "nemesis.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "nemesis.labels" -}}
app.kubernetes.io/name: nemesis
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "nemesis.describes" -}}
{{ include "nemesis.labels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "nemesis.server" -}}
{{- if .Values.server -}}
{{ .Values.server }}
{{- else -}}
nats://{{ .Release.Name }}-nats:4222
{{- end -}}
{{- end }}

{{- define "nemesis.env" -}}
- { name: NEMESIS_SERVER, value: {{ include "nemesis.server" . | quote }} }
- { name: NEMESIS_CREDENTIALS, value: /seeds }
- { name: NEMESIS_STATE_DIR, value: /tmp/nemesis }
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
{{- end }}

{{- define "nemesis.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
capabilities: { drop: [ALL] }
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- /* A part of the control plane: root, part, args, and where it listens, if it does. */ -}}
{{- define "nemesis.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .part }}
  labels: {{- include "nemesis.describes" . | nindent 4 }}
spec:
  replicas: {{ .replicas }}
  selector:
    matchLabels: {{- include "nemesis.labels" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "nemesis.labels" . | nindent 8 }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      securityContext: { fsGroup: 10001 }
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "nemesis.labels" . | nindent 14 }}
      containers:
        - name: {{ .part }}
          image: {{ include "nemesis.image" .root | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{- toYaml .args | nindent 12 }}
          env: {{- include "nemesis.env" .root | nindent 12 }}
          securityContext: {{- include "nemesis.confined" .root | nindent 12 }}
          resources: {{- toYaml (.resources | default .root.Values.partResources) | nindent 12 }}
          {{- if .port }}
          ports: [{ name: http, containerPort: {{ .port }} }]
          startupProbe:
            httpGet: { path: /healthz, port: http }
            periodSeconds: 5
            failureThreshold: 60
          livenessProbe:
            httpGet: { path: /healthz, port: http }
            periodSeconds: 15
            timeoutSeconds: 5
          readinessProbe:
            httpGet: { path: {{ .ready }}, port: http }
            periodSeconds: 10
            timeoutSeconds: 5
          {{- else }}
          startupProbe:
            exec: { command: [nemesis, check, --here] }
            periodSeconds: 10
            timeoutSeconds: 10
            failureThreshold: 60
          livenessProbe:
            exec: { command: [nemesis, check, --here] }
            periodSeconds: 60
            timeoutSeconds: 10
            failureThreshold: 5
          {{- end }}
          volumeMounts:
            - { name: seeds, mountPath: /seeds, readOnly: true }
            - { name: tmp, mountPath: /tmp }
      volumes:
        - name: seeds
          secret: { secretName: nemesis-{{ .part }}, defaultMode: 0440 }
        - name: tmp
          emptyDir: { sizeLimit: 256Mi }
{{- end }}
