package service

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthCheckAsksOverTLSAndSaysWhatIsNotReady(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte("store: no leader"))
	}))
	if err := askReady(t.Context(), server.URL+"/readyz"); err != nil {
		t.Error(err)
	}
	status = http.StatusServiceUnavailable
	if err := askReady(t.Context(), server.URL+"/readyz"); err == nil || !strings.Contains(err.Error(), "/readyz: 503 Service Unavailable: store") {
		t.Errorf("error %v: want one with the answer", err)
	}
	server.Close()
	if err := askReady(t.Context(), server.URL); err == nil {
		t.Error("a service that is not there is ready")
	}
}
