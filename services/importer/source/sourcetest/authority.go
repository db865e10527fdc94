package sourcetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// authority signs a certificate for every name that is asked for.
type authority struct {
	certificateDER []byte
	key            *ecdsa.PrivateKey
	parent         *x509.Certificate
	pem            []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("sourcetest: make a key: %w", err)
	}
	template := template("Test authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sourcetest: make a certificate: %w", err)
	}
	parent, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("sourcetest: read a certificate: %w", err)
	}
	return &authority{
		certificateDER: der, key: key, parent: parent, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

func (a *authority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	leaf := template(hello.ServerName)
	leaf.DNSNames = []string{hello.ServerName}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.parent, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sourcetest: make a certificate for %s: %w", hello.ServerName, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.certificateDER}, PrivateKey: a.key}, nil
}
