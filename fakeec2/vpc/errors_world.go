package vpc

// EC2's error codes that the model uses for what builds a world, and for trunks. Where EC2's documents have no code, it is made
// after the pattern of the others.
const (
	CodeAlreadyAssociated    = "Resource.AlreadyAssociated"
	CodeAssociationMalformed = "InvalidAssociationID.Malformed"
	CodeAssociationNotFound  = "InvalidAssociationID.NotFound"
	CodeDependency           = "DependencyViolation"
	CodeGatewayMalformed     = "InvalidInternetGatewayId.Malformed"
	CodeGatewayNotFound      = "InvalidInternetGatewayID.NotFound"
	CodeGroupDuplicate       = "InvalidGroup.Duplicate"
	CodeInvalidID            = "InvalidID"
	CodeNotAttached          = "Gateway.NotAttached"
	CodePermissionDuplicate  = "InvalidPermission.Duplicate"
	CodePermissionNotFound   = "InvalidPermission.NotFound"
	CodeReservationMalformed = "InvalidSubnetCidrReservationId.Malformed"
	CodeReservationNotFound  = "InvalidSubnetCidrReservationID.NotFound"
	CodeRouteExists          = "RouteAlreadyExists"
	CodeRouteNotFound        = "InvalidRoute.NotFound"
	CodeRouteTableMalformed  = "InvalidRouteTableId.Malformed"
	CodeRouteTableNotFound   = "InvalidRouteTableID.NotFound"
	CodeRuleLimit            = "RulesPerSecurityGroupLimitExceeded"
)
