package calico

// migrationEnd is an end of a LiveMigration: an endpoint, or all of a workload. Upstream has
// targets by selector, too, which are never stored: it makes them of what KubeVirt stores.
type migrationEnd struct {
	WorkloadEndpoint *migrationIdentifier `json:"workloadEndpoint"`
	Workload         *migrationIdentifier `json:"workload"`
}

type migrationIdentifier struct {
	Hostname       string `json:"hostname"`
	OrchestratorID string `json:"orchestratorID"`
	WorkloadID     string `json:"workloadID"`
	EndpointID     string `json:"endpointID"`
}

func (e *migrationEnd) end() MigrationEnd {
	switch {
	case e == nil:
	case e.WorkloadEndpoint != nil:
		return e.WorkloadEndpoint.end()
	case e.Workload != nil:
		return e.Workload.end()
	}
	return MigrationEnd{}
}

func (i migrationIdentifier) end() MigrationEnd {
	return MigrationEnd{Host: i.Hostname, Orchestrator: i.OrchestratorID, Workload: i.WorkloadID,
		Endpoint: i.EndpointID}
}

func decodeLiveMigration(k Key, value []byte) (LiveMigration, error) {
	var spec struct {
		Source *migrationEnd `json:"source"`
		Target *migrationEnd `json:"target"`
	}
	if _, err := decodeSpec(k, value, &spec); err != nil {
		return LiveMigration{}, err
	}
	return LiveMigration{Namespace: k.Namespace, Name: k.Name, Source: spec.Source.end(),
		Target: spec.Target.end()}, nil
}
