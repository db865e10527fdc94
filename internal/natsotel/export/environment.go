package export

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/internal/private"
)

// variable returns the variable for traces if it is set, and otherwise the variable for all signals.
func variable(key string) (name, value string) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		name = prefix + key
		if value = strings.TrimSpace(os.Getenv(name)); value != "" {
			break
		}
	}
	return name, value
}

// checkEnvironment returns an error that names every variable that otlptracehttp cannot use. On its own the exporter logs a mistake,
// with the header or file that has it, and goes on without the setting.
func checkEnvironment() error {
	var errs []error
	for _, setting := range []struct {
		key   string
		check func(value string) error
	}{
		{"CERTIFICATE", checkCertificate},
		{"CLIENT_CERTIFICATE", checkClientCertificate},
		{"COMPRESSION", oneOf("gzip", "none")},
		{"ENDPOINT", checkEndpoint},
		{"HEADERS", checkHeaders},
		{"PROTOCOL", oneOf("http/protobuf", "http/json")}, // collectors take gRPC on another port
		{"TIMEOUT", checkTimeout},
	} {
		if name, value := variable(setting.key); value != "" {
			if err := setting.check(value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func checkCertificate(path string) error {
	pem, err := private.ReadFile(path, private.MaxPEM)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s has no certificate in PEM", path)
	}
	return err
}

func checkClientCertificate(path string) error {
	name, key := variable("CLIENT_KEY")
	if _, err := tls.LoadX509KeyPair(path, key); err != nil {
		return fmt.Errorf("with %s: %w", name, err)
	}
	return nil
}

func oneOf(first, second string) func(string) error {
	return func(value string) error {
		if value != first && value != second {
			return fmt.Errorf("%q is neither %s nor %s", value, first, second)
		}
		return nil
	}
}

func checkEndpoint(value string) error {
	u, err := url.Parse(value)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = fmt.Errorf("%q is not a URL such as http://collector:4318", value)
	}
	return err
}

func checkHeaders(value string) error {
	for i, header := range strings.Split(value, ",") {
		name, value, found := strings.Cut(header, "=")
		if _, err := url.PathUnescape(value); !found || err != nil || strings.TrimSpace(name) == "" {
			return fmt.Errorf("header %d of the list is not name=value, with %%-escapes in the value", i+1)
		}
	}
	return nil
}

func checkTimeout(value string) error {
	if ms, err := strconv.Atoi(value); err != nil || ms <= 0 {
		return fmt.Errorf("%q is not a number of milliseconds", value)
	}
	return nil
}
