// Package install tests the ways of installation: images, the compose file, and the chart.
package install

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"go.uber.org/goleak"
	chartloader "helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// load reads the compose file of a folder, as `docker compose` does: with the schema and the variables of .env.
func load(t *testing.T, dir string) *types.Project {
	t.Helper()
	env := map[string]string{"SITE_USER": "1234:1234", "VERSION": "v0.0.0"}
	if data, err := os.ReadFile(filepath.Join(dir, ".env")); err == nil {
		if env, err = dotenv.Parse(strings.NewReader(string(data))); err != nil {
			t.Fatal(err)
		}
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: dir, ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml")}}, Environment: env,
	})
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// No container of the compose file is root, writes to its root folder, or gains rights, and each that stays has a health check.
func TestComposeFileIsHardened(t *testing.T) {
	t.Parallel()
	project := load(t, "../../deploy/compose")
	if len(project.Services) != 16 {
		t.Errorf("%d services: want 16", len(project.Services))
	}
	for name, service := range project.Services {
		switch {
		case !service.ReadOnly || service.User != "1234:1234" || service.Privileged:
			t.Errorf("%s is not read-only, or of the user %q", name, service.User)
		case !slices.Equal(service.CapDrop, []string{"ALL"}) || !slices.Equal(service.SecurityOpt, []string{"no-new-privileges:true"}):
			t.Errorf("%s has rights: without %q, %q", name, service.CapDrop, service.SecurityOpt)
		case service.HealthCheck == nil && service.Restart != "on-failure":
			t.Errorf("%s has no health check", name)
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s listens on %s:%s, for other machines", name, port.HostIP, port.Published)
			}
		}
		for _, volume := range service.Volumes {
			if strings.HasPrefix(volume.Target, "/run/secrets") && !volume.ReadOnly {
				t.Errorf("%s may write its secrets", name)
			}
		}
	}
}

// The servers are of the version that the tests use.
func TestServersAreOfTheTestedVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../test/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`nats-server/v2 v(\S+)`).FindStringSubmatch(string(text))[1]
	if image := load(t, "../../deploy/compose").Services["n1"].Image; image != "nats:"+version+"-alpine" {
		t.Errorf("the image is %s: the tests use %s", image, version)
	}
}

// Alerts name jobs, so the site has those that the rules are tested with.
func TestSiteScrapesTheJobsOfTheAlerts(t *testing.T) {
	t.Parallel()
	job := regexp.MustCompile(`job_name: (\S+)`)
	var names [][]string
	for _, file := range []string{"../../deploy/prometheus/prometheus.yaml", "../../deploy/compose/prometheus.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, job.FindAllString(string(text), -1))
	}
	if len(names[0]) == 0 || !slices.Equal(names[0], names[1]) {
		t.Errorf("jobs %q: want %q", names[1], names[0])
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const chartDir = "../../deploy/helm/expediter"

// everything are the values that turn everything on.
var everything = map[string]any{
	"image": map[string]any{"registry": "r", "tag": "v9.9.9", "pullSecrets": []any{map[string]any{"name": "pull"}}},
	"nats":  map[string]any{"url": "nats://n1:4222", "to": []any{map[string]any{"podSelector": map[string]any{}}}},
	"from":  []any{map[string]any{"podSelector": map[string]any{}}}, "keda": map[string]any{"enabled": true, "prometheus": "http://p:9090"},
	"prometheusRule": map[string]any{"enabled": true, "labels": map[string]any{"release": "p"}},
	"serviceMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "p"}},
	"console":        map[string]any{"enabled": true, "metricsKey": "scrape.key"},
}

// scaledObject is the part of KEDA's type that the chart uses.
type scaledObject struct {
	APIVersion, Kind string
	Metadata         struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		ScaleTargetRef                   struct{ Name string }
		MinReplicaCount, MaxReplicaCount int32
		Fallback                         struct {
			FailureThreshold, Replicas int32
			Behavior                   string
		}
		Triggers []struct {
			Type     string
			Metadata map[string]string
		}
	}
}

// render renders the chart as `helm template` does, and decodes each object into its type, with nothing that the type does not have.
func render(t *testing.T, set map[string]any) ([]any, error) {
	t.Helper()
	c, err := chartloader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	values, err := chartutil.ToRenderValues(c, set, chartutil.ReleaseOptions{Name: "site", Namespace: "default"}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Engine{Strict: true}.Render(c, values)
	if err != nil {
		return nil, err
	}
	var objects []any
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		for text := range strings.SplitSeq(texts[name], "\n---\n") {
			if path.Ext(name) != ".yaml" || strings.TrimSpace(text) == "" {
				continue
			}
			var kind struct{ Kind string }
			if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			object := map[string]any{
				"Deployment": new(apps.Deployment), "NetworkPolicy": new(networking.NetworkPolicy), "PodDisruptionBudget": new(policy.PodDisruptionBudget),
				"PrometheusRule": new(monitoring.PrometheusRule), "ScaledObject": new(scaledObject), "Service": new(core.Service),
				"ServiceAccount": new(core.ServiceAccount), "ServiceMonitor": new(monitoring.ServiceMonitor),
			}[kind.Kind]
			if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
				t.Fatalf("%s: %v\n%s", kind.Kind, err, text)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

func TestChartHasNoFindings(t *testing.T) {
	t.Parallel()
	for _, message := range lint.All(chartDir, nil, "default", true).Messages {
		if !strings.Contains(message.Error(), "icon is recommended") {
			t.Error(message)
		}
	}
}

func TestChartRendersWhatItSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set     map[string]any
		objects int
	}{
		"of the defaults": {nil, 3 * 5},
		"without a key of the console": {
			map[string]any{
				"console": map[string]any{"enabled": true}, "serviceMonitor": map[string]any{"enabled": true}, "image": everything["image"],
			}, 3*6 + 5,
		},
		"of one service":      {map[string]any{"enricher": map[string]any{"enabled": false}, "importer": map[string]any{"enabled": false}}, 5},
		"of everything":       {everything, 3*7 + 6 + 1},
		"of nothing optional": {map[string]any{"networkPolicy": map[string]any{"enabled": false}, "podDisruptionBudget": map[string]any{"enabled": false}}, 3 * 3},
	} {
		objects, err := render(t, test.set)
		if err != nil || len(objects) != test.objects {
			t.Errorf("%s %d objects, %v: want %d", name, len(objects), err, test.objects)
		}
		for _, object := range objects {
			switch o := object.(type) {
			case *apps.Deployment:
				restricted(t, name, o)
				if o.Name == "site-console" {
					console(t, o)
				} else if (o.Spec.Replicas == nil) != (name == "of everything") {
					t.Errorf("%s: %s has replicas beside KEDA, or none", name, o.Name)
				}
			case *monitoring.PrometheusRule:
				if len(o.Spec.Groups) == 0 {
					t.Errorf("%s: no alerts", name)
				}
			case *monitoring.ServiceMonitor:
				if o.Labels[o.Spec.JobLabel] != strings.TrimPrefix(o.Name, "site-") {
					t.Errorf("%s: the job of %s is the label %q", name, o.Name, o.Spec.JobLabel)
				}
				if key := o.Spec.Endpoints[0].Authorization.Credentials.Key; (key == "scrape.key") != (o.Name == "site-console") {
					t.Errorf("%s: %s is scraped with %q", name, o.Name, key)
				}
			case *core.ServiceAccount:
				if *o.AutomountServiceAccountToken {
					t.Errorf("%s: %s has a token", name, o.Name)
				}
			case *scaledObject: // a consumer that is missing must not scale to the maximum, as with the trigger nats-jetstream
				trigger := o.Spec.Triggers[0]
				if trigger.Type != "prometheus" || trigger.Metadata["ignoreNullValues"] != "true" || o.Spec.Fallback.Behavior != "currentReplicas" {
					t.Errorf("%s: %+v", name, o)
				}
			}
		}
	}
}

// console checks that the console is one pod, and is started as the compose file does it.
func console(t *testing.T, d *apps.Deployment) {
	t.Helper()
	c, like := d.Spec.Template.Spec.Containers[0], load(t, "../../deploy/compose").Services["console"]
	if *d.Spec.Replicas != 1 || c.Image != "r/expediter:v9.9.9" || !slices.Equal(c.Args, like.Command) {
		t.Errorf("%d pods of %s with the arguments %q: want 1 of r/expediter:v9.9.9 with %q", *d.Spec.Replicas, c.Image, c.Args, like.Command)
	}
	for name, value := range like.Environment {
		if name != "NATS_URL" && !slices.Contains(c.Env, core.EnvVar{Name: name, Value: *value}) {
			t.Errorf("the console lacks %s=%s", name, *value)
		}
	}
}

// restricted checks a deployment against the Pod Security Standard of that name, and that its root folder is read-only.
func restricted(t *testing.T, name string, d *apps.Deployment) {
	t.Helper()
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if !*pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *pod.AutomountServiceAccountToken ||
		*c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem || c.SecurityContext.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%s: %s is not restricted: %+v %+v", name, d.Name, pod.SecurityContext, c.SecurityContext)
	}
	if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.Resources.Limits.Memory().IsZero() || len(pod.TopologySpreadConstraints) != 2 {
		t.Errorf("%s: %s has no probes, limits or spread", name, d.Name)
	}
	if temp := (core.EnvVar{Name: "IMPORTER_TEMP_DIR", Value: "/tmp/importer"}); slices.Contains(c.Args, "importer") && !slices.Contains(c.Env, temp) {
		t.Errorf("%s: the temporary files of %s are in a volume to which everybody may write: want %v", name, d.Name, temp)
	}
	for _, variable := range c.Env {
		if strings.HasPrefix(variable.Name, "NATS_") && variable.Name != "NATS_URL" && !strings.HasPrefix(variable.Value, "/run/secrets/") {
			t.Errorf("%s: %s has %s=%s, which is no file", name, d.Name, variable.Name, variable.Value)
		}
	}
}

func TestChartRefusesWrongValues(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]map[string]any{
		"keda.prometheus": {"keda": map[string]any{"enabled": true}},
		"replica":         {"enricher": map[string]any{"replica": 3}},
		"nats/url":        {"nats": map[string]any{"url": "nats://me:secret@n1:4222"}},
		"notifier/secret": {"notifier": map[string]any{"secret": ""}},
		"replicas":        {"console": map[string]any{"replicas": 2}},
	} {
		if _, err := render(t, set); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), ".url", "/url"), want) {
			t.Errorf("error %v: want one with %q", err, want)
		}
	}
	if _, err := render(t, everything); err != nil {
		t.Error(err)
	}
}
