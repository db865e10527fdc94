package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// variable returns the variable for traces if it is set, and otherwise that for all signals.
func variable(key string) (name, value string) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		name = prefix + key
		if value = strings.TrimSpace(os.Getenv(name)); value != "" {
			break
		}
	}
	return name, value
}

// configure reads the environment, and returns an error with every mistake in it.
func (c *Client) configure() error {
	var errs []error
	for _, setting := range []struct {
		key  string
		read func(name, value string) error
	}{
		{"CERTIFICATE", c.readCertificate},
		{"CLIENT_CERTIFICATE", c.readClientCertificate},
		{"COMPRESSION", c.readCompression},
		{"ENDPOINT", c.readEndpoint},
		{"HEADERS", c.readHeaders},
		{"PROTOCOL", readProtocol},
		{"TIMEOUT", c.readTimeout},
	} {
		if name, value := variable(setting.key); value != "" {
			if err := setting.read(name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (c *Client) readCertificate(_, path string) error {
	pem, err := os.ReadFile(path) //nolint:gosec // that of the operator
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	c.tls.RootCAs = x509.NewCertPool()
	if !c.tls.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s has no certificate in PEM", path)
	}
	return nil
}

func (c *Client) readClientCertificate(_, path string) error {
	name, key := variable("CLIENT_KEY")
	pair, err := tls.LoadX509KeyPair(path, key)
	if err != nil {
		return fmt.Errorf("with %s: %w", name, err)
	}
	c.tls.Certificates = []tls.Certificate{pair}
	return nil
}

func (c *Client) readCompression(_, value string) error {
	c.gzip = value == "gzip"
	if !c.gzip && value != "none" {
		return fmt.Errorf("%q is neither gzip nor none", value)
	}
	return nil
}

func (c *Client) readEndpoint(name, value string) error {
	u, err := url.Parse(value)
	if err != nil {
		return err //nolint:wrapcheck // has the value
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not a URL such as http://collector:4318", value)
	}
	if !strings.Contains(name, "_TRACES_") {
		u = u.JoinPath("v1/traces")
	}
	c.url = u
	return nil
}

// readHeaders reads name=value,name=value. Its errors have no values: most are secrets.
func (c *Client) readHeaders(_, value string) error {
	for i, header := range strings.Split(value, ",") {
		name, value, found := strings.Cut(header, "=")
		value, err := url.PathUnescape(value)
		if !found || err != nil || strings.TrimSpace(name) == "" {
			return fmt.Errorf("header %d of the list is not name=value, with %%-escapes in the value", i+1)
		}
		c.header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return nil
}

func readProtocol(_, value string) error {
	if value != "http/protobuf" {
		return fmt.Errorf("%q: traces are sent by http/protobuf only, which every collector takes", value)
	}
	return nil
}

func (c *Client) readTimeout(_, value string) error {
	ms, err := strconv.Atoi(value)
	if err != nil || ms <= 0 {
		return fmt.Errorf("%q is not a number of milliseconds", value)
	}
	c.timeout = time.Duration(ms) * time.Millisecond
	return nil
}
